"""The proof that what unmodified agents do can be trained: play, compare, step, swap, again.

    agent ◄─► gateway ◄─► embedded engine      ids of every turn are the engine's
      │            │
    wall.txt     ledger ──► samples ──► trainer   logprobs agree, the reward climbs
      └── reward ──┘

The model first imitates demonstrations: the same agent's calls, answered by a script that paints
red in one and blue in the other. It then plays both, and only the reward says which is right. What
it has learned is read from a prompt that it has not met: the agent in another folder.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from engines import Scripted
from phrases import Demonstration, byte_model, imitate
from stand import Stand, standing

from tradewind.algo.samples import samples_of
from tradewind.ledger.rollouts import LeasedRollout
from tradewind.pool.engines.embedded.engine import EmbeddedEngine
from tradewind.pool.proof import CEILING, limits
from tradewind.render.renderer import Renderer
from tradewind.trainer.config import TrainerConfig
from tradewind.trainer.learner import Learner
from tradewind.trainer.step import Trainer
from tradewind.types import ClosedGroup, Fingerprint

TASK = "Paint the wall."
COLOURS = ("red", "blue")
ROOMS = ("hall", "kitchen", "north-staircase")
"""Folders of demonstrations; rollouts are played in others."""
GROUP = 4


class Played(NamedTuple):
    """One rollout."""

    lease: LeasedRollout
    wall: str
    died: str | None
    """What the agent ended with, if it did not finish: that is graded as it stands."""


Play = Callable[[Stand, Path, int], list[Played]]
"""Plays so many rollouts with an agent; each has its own folder below the given one."""


@dataclass(frozen=True)
class Painter:
    """An agent that paints a wall, and the moves that its script knows, a line for each colour."""

    dialect: str
    moves: tuple[tuple[str, ...], ...]
    play: Play
    rooms: int = 1
    """In which both colours are shown; more where prompts name their folder, for none must come to
    mean a colour."""

    def phrases(self) -> list[str]:
        """What the moves are made of: a move is a handful of tokens."""
        moves = [move for line in self.moves for move in line]
        parts = [move.partition(colour) for move in moves for colour in COLOURS if colour in move]
        plain = [move for move in moves if not any(colour in move for colour in COLOURS)]
        return [*COLOURS, *plain, *(part for before, _, after in parts for part in (before, after))]


@dataclass(frozen=True)
class Learned:
    """What training did to the policy."""

    before: float
    """Probability of the first move to red, in a room that was not shown."""
    after: float
    rewards: tuple[float, ...]
    """Share of red walls in each step."""


def demonstrate(painter: Painter, folder: Path, rooms: int = 1) -> list[Demonstration]:
    """The agent's own calls in each room, red and blue, with a script behind the gateway."""
    model = byte_model(folder / "bytes", window=1 << 20)
    texts = [move for line in painter.moves for move in line] * rooms
    with standing(folder, model, Scripted(Renderer.open(model), texts), max_tokens=512) as stand:
        places = [folder / room for room in ROOMS[:rooms]]
        for place in places:
            place.mkdir()
        return [_shown(painter, stand, place, colour) for place in places for colour in COLOURS]


def _shown(painter: Painter, stand: Stand, folder: Path, colour: str) -> Demonstration:
    ((lease, wall, died),) = painter.play(stand, folder, 1)
    assert (wall, died) == (colour, None)
    turns = stand.turns(lease)
    assert [turn.kind for turn in turns] == ["root", "extended"]
    assert {turn.dialect for turn in turns} == {painter.dialect}
    return Demonstration(tuple(turns))


def learn(painter: Painter, folder: Path, steps: int, groups: int) -> Learned:
    """Trains on `steps` batches of `groups` groups, and compares ids and logprobs in each."""
    *shown, unseen, _ = demonstrate(painter, folder, painter.rooms + 1)
    # Lines that differ (a folder, a session) stay bytes: the policy will see others yet.
    same = set.intersection(*(one.phrases() for one in shown))
    model = imitate(folder / "model", shown, same.union(painter.phrases()), steps=100)
    config = TrainerConfig(loss="reinforce", lr=1e-3, max_staleness=0, threads=1, dtype="fp32")
    trainer = Trainer(Learner.open(model, config), config)
    engine = EmbeddedEngine.open(model, threads=1, dtype="float32", max_tokens=65536)
    rewards, allowed = [], None
    before = likely(trainer.learner, unseen, model)
    (folder / "run").mkdir()
    with standing(folder / "run", model, engine) as stand:
        for step in range(steps):
            played = painter.play(stand, folder / "run", GROUP * groups)
            rewards.append(_grade(stand, played))
            closed = stand.closed(groups, step)
            assert_ids_are_the_engines(stand, closed)
            fingerprint = assert_logprobs_agree(trainer.learner, closed, allowed)
            allowed = allowed or limits(fingerprint)
            samples = [sample for group in closed for sample in samples_of(group).samples]
            trainer.step(samples, version=step, number=step)
            engine.swap(trainer.learner.weights(), step + 1)
            stand.commit(step, closed)
            stand.serve(step + 1)
        assert stand.ledger.audit() == []
    return Learned(before, likely(trainer.learner, unseen, model), tuple(rewards))


def _grade(stand: Stand, played: Sequence[Played]) -> float:
    """Red walls are right; the share of them."""
    for lease, wall, _ in played:
        stand.turns(lease)
        stand.grade(lease, float(wall == "red"))
    return sum(wall == "red" for _, wall, _ in played) / len(played)


def assert_ids_are_the_engines(stand: Stand, groups: list[ClosedGroup]) -> None:
    turns = [turn for group in groups for rollout in group.rollouts for turn in rollout.turns]
    assert turns
    for turn in turns:
        assert turn.completion is not None
        assert turn.prompt_ids == stand.engine.asked[turn.turn_id]
        assert list(turn.completion.output_ids) == stand.engine.gave[turn.turn_id]


def assert_logprobs_agree(learner: Learner, groups: list[ClosedGroup], allowed: Any) -> Fingerprint:
    """The trainer's forward over every chain, against what the engine said as it sampled."""
    samples = [sample for group in groups for sample in samples_of(group).samples]
    chains = sorted({sample.ids for sample in samples})
    read = dict(zip(chains, (p.logprobs for p in learner.probe(chains)), strict=True))
    apart = [
        abs(logprob - read[sample.ids][at - 1])
        for sample in samples
        for at, (sampled, logprob) in enumerate(zip(sample.mask, sample.logprobs, strict=True))
        if sampled
    ]
    mean, largest = sum(apart) / len(apart), max(apart)
    if allowed is not None:
        assert mean <= allowed[0] and largest <= allowed[1], (mean, largest, allowed)
    assert mean <= CEILING
    return Fingerprint(version=0, tokens=len(apart), mean=mean, largest=largest)


def likely(learner: Learner, shown: Demonstration, model: Path) -> float:
    """The probability with which the policy makes the first move of a demonstration."""
    ids, said = Demonstration(shown.turns[:1]).ids(Renderer.open(model))
    (probe,) = learner.probe([tuple(ids)])
    return math.exp(sum(p for p, mine in zip(probe.logprobs, said[1:], strict=True) if mine))
