"""Unmodified agents finish tasks through the gateway, and their rollouts train a tiny model.

    agent ◄─► gateway ◄─► embedded engine      ids of every turn are the engine's
      │            │
    wall.txt     ledger ──► samples ──► trainer   logprobs agree, the reward climbs
      └── reward ──┘

The model first imitates demonstrations: the same agent's calls, answered by a script that paints
red in one and blue in the other. It then plays both, and only the reward says which is right.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from engines import Scripted
from phrases import Demonstration, byte_model, call, imitate
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

FULL = bool(os.environ.get("TRADEWIND_FULL"))
STEPS, GROUPS, GAIN = (16, 8, 0.25) if FULL else (6, 4, 0.1)
TASK = "Paint the wall."
COLOURS = ("red", "blue")
DONE = call("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200 if FULL else 300)]


@dataclass(frozen=True)
class Game:
    """An agent, how it speaks, and the moves that its script knows."""

    script: str
    dialect: str
    moves: tuple[tuple[str, ...], ...]

    def phrases(self) -> list[str]:
        """What the moves are made of: a move is a handful of tokens."""
        moves = [move for line in self.moves for move in line]
        parts = [move.partition(colour) for move in moves for colour in COLOURS if colour in move]
        plain = [move for move in moves if not any(colour in move for colour in COLOURS)]
        return [*COLOURS, *plain, *(part for before, _, after in parts for part in (before, after))]


def _shell(colour: str) -> str:
    return call("bash", command=f"printf {colour} > wall.txt")


SHELL = tuple((_shell(colour), DONE) for colour in COLOURS)
PAINT = tuple((call("paint", colour=colour), "The wall is painted.") for colour in COLOURS)
GAMES = {
    "mini-swe-agent, chat": Game("mini_swe.py", "chat", SHELL),
    "mini-swe-agent, messages": Game("mini_swe.py", "messages", SHELL),
    "mini-swe-agent, responses": Game("mini_swe.py", "responses", SHELL),
    "openai-agents, responses": Game("openai_agent.py", "responses", PAINT),
    "openai-agents, chat": Game("openai_agent.py", "chat", PAINT),
}
LEARNED = ("mini-swe-agent, chat", "openai-agents, responses")
"""In CI; all of them in full size."""


class Played(NamedTuple):
    """One rollout."""

    lease: LeasedRollout
    wall: str
    died: str | None
    """What the agent ended with, if it did not finish: that is graded as it stands."""


def play(stand: Stand, agents: Any, game: Game, folder: Path, n: int) -> list[Played]:
    """`n` rollouts at once."""
    leases = {lease.rollout_id: lease for lease in (stand.lease() for _ in range(n))}
    rollouts = []
    for name, lease in leases.items():
        (folder / name).mkdir()
        where = {"base_url": stand.url, "key": lease.model_key, "folder": str(folder / name)}
        rollouts.append({"name": name, "task": TASK, "dialect": game.dialect, **where})
    ended = agents[game.script].play(rollouts)
    walls = {name: folder / name / "wall.txt" for name in leases}
    return [
        Played(
            lease,
            walls[name].read_text() if walls[name].exists() else "",
            ended[name].get("error"),
        )
        for name, lease in leases.items()
    ]


def demonstrate(agents: Any, game: Game, folder: Path) -> list[Demonstration]:
    """The agent's own calls, with a script behind the gateway."""
    model = byte_model(folder / "bytes")
    texts = [move for line in game.moves for move in line]
    with standing(folder, model, Scripted(Renderer.open(model), texts)) as stand:
        found = []
        for colour in COLOURS:
            ((lease, wall, died),) = play(stand, agents, game, folder, 1)
            assert (wall, died) == (colour, None)
            turns = stand.turns(lease)
            assert [turn.kind for turn in turns] == ["root", "extended"]
            assert {turn.dialect for turn in turns} == {game.dialect}
            found.append(Demonstration(tuple(turns)))
    return found


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
    """The probability with which the policy makes the first move that was shown."""
    ids, said = Demonstration(shown.turns[:1]).ids(Renderer.open(model))
    (probe,) = learner.probe([tuple(ids)])
    return math.exp(sum(p for p, mine in zip(probe.logprobs, said[1:], strict=True) if mine))


@pytest.mark.parametrize("name", GAMES)
def test_unmodified_agent_finishes_its_task_and_its_second_turn_extends_the_first(
    name, agents, tmp_path
):
    shown = demonstrate(agents, GAMES[name], tmp_path)
    assert [len(one.turns) for one in shown] == [2, 2]


@pytest.mark.parametrize("name", GAMES if FULL else LEARNED)
def test_tiny_model_learns_from_the_rollouts_of_an_unmodified_agent(name, agents, tmp_path):
    game = GAMES[name]
    shown = demonstrate(agents, game, tmp_path)
    model = imitate(tmp_path / "model", shown, game.phrases(), steps=100)
    config = TrainerConfig(loss="reinforce", lr=1e-3, max_staleness=0, threads=1, dtype="fp32")
    trainer = Trainer(Learner.open(model, config), config)
    engine = EmbeddedEngine.open(model, threads=1, dtype="float32", max_tokens=65536)
    rewards, allowed = [], None
    before = likely(trainer.learner, shown[0], model)
    (tmp_path / "run").mkdir()
    with standing(tmp_path / "run", model, engine) as stand:
        for step in range(STEPS):
            played = play(stand, agents, game, tmp_path / "run", 4 * GROUPS)
            for lease, wall, _ in played:
                stand.turns(lease)
                stand.grade(lease, float(wall == "red"))
            rewards.append(sum(wall == "red" for _, wall, _ in played) / len(played))
            groups = stand.closed(GROUPS, step)
            assert_ids_are_the_engines(stand, groups)
            fingerprint = assert_logprobs_agree(trainer.learner, groups, allowed)
            allowed = allowed or limits(fingerprint)
            trainer.step(
                [s for g in groups for s in samples_of(g).samples], version=step, number=step
            )
            engine.swap(trainer.learner.weights(), step + 1)
            stand.commit(step, groups)
            stand.serve(step + 1)
        assert stand.ledger.audit() == []
    after = likely(trainer.learner, shown[0], model)
    assert after > before + GAIN, (before, after, rewards)
    if FULL:
        assert sum(rewards[-4:]) > sum(rewards[:4]) + 0.5, rewards
