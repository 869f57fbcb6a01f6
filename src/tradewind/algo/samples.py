"""Turns of a closed group -> samples (stop 7). Torch-free.

    t0 ──► t1 ──► t2        leaf t2: branch t0 t1 t2, trains t0 t1 t2
     └───► t3               leaf t3: branch t0 t3,    trains t3 (t0 is context, trained above)
    t4                      leaf t4: its prompt extends nobody (a fork): branch t4, trains t4

A branch is the chain from a root to a turn without children, linked by exact id prefixes only.

Rule of single counting: a sampled token is trained once per rollout, in the first kept branch
(in the order in which leaves arrived) that contains its turn; in every later branch it is context.
A branch in which nothing is left to train is not kept.

Rule of taint: a branch with a turn that is not DONE, whose parent is unknown or whose prompt does
not extend its parent id for id, whose lengths disagree, or which has a log-probability that is not
finite, is excluded as a whole and counted under its cause. Nothing is repaired and nothing is
tokenised again (promises R1, R3). Excluded branches do not lower the weight of the others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tradewind.types import ClosedGroup, GradedRollout, Sample, Turn, TurnState

Branch = tuple[Turn, ...]


@dataclass(frozen=True)
class Collected:
    """Samples of one or more groups, and what was left out."""

    samples: tuple[Sample, ...]
    excluded: Counter[str] = field(default_factory=Counter)
    """Branches by cause: `lost`, `auxiliary` (a side call), `broken_prefix`, `misaligned`,
    `temperature`, `nonfinite` (a log-probability that is not finite or lies above zero), `empty`
    (nothing left to train). Rollouts by cause: `null` (no credit), `silent` (no turn at all)."""


def samples_of(group: ClosedGroup) -> Collected:
    """All trainable samples of a group, in the order of rollouts and of leaf arrival."""
    samples: list[Sample] = []
    excluded: Counter[str] = Counter()
    for rollout in group.rollouts:
        if rollout.advantage is None:
            excluded["null"] += 1
        elif not rollout.turns:
            excluded["silent"] += 1
        else:
            samples += _rollout_samples(group.group.group_id, rollout, excluded)
    return Collected(tuple(samples), excluded)


def branches(turns: Sequence[Turn]) -> list[tuple[Branch, str | None]]:
    """Chains from root to leaf in the order of leaf arrival, each with the cause of its taint.

    A chain stops at an unknown parent and is then `broken_prefix`.
    """
    by_id = {turn.turn_id: turn for turn in turns}
    parents = {turn.parent for turn in turns}
    found: list[tuple[Branch, str | None]] = []
    for leaf in sorted(turns, key=lambda turn: turn.index):
        if leaf.turn_id in parents:
            continue
        chain = [leaf]
        while (parent := chain[-1].parent) is not None and parent in by_id:
            chain.append(by_id[parent])
            assert len(chain) <= len(turns), f"turns of {leaf.rollout_id} link in a circle"
        chain.reverse()
        cause = "broken_prefix" if chain[0].parent is not None else _taint(chain)
        found.append((tuple(chain), cause))
    return found


def _rollout_samples(group_id: str, rollout: GradedRollout, excluded: Counter[str]) -> list[Sample]:
    assert rollout.advantage is not None and math.isfinite(rollout.advantage), rollout.rollout_id
    trained: set[str] = set()
    kept: list[tuple[Branch, list[bool]]] = []
    for branch, cause in branches(rollout.turns):
        if cause is None:
            fresh = [_sampled(turn) and turn.turn_id not in trained for turn in branch]
            cause = None if any(fresh) else "empty"
        if cause is not None:
            excluded[cause] += 1
            continue
        trained.update(turn.turn_id for turn in branch)
        kept.append((branch, fresh))
    weight = 1.0 / max(1, len(kept))
    return [_sample(group_id, *branch, rollout.advantage, weight) for branch in kept]


def _sampled(turn: Turn) -> bool:
    return turn.completion is not None and len(turn.completion.output_ids) > 0


def _sample(
    group_id: str, branch: Branch, fresh: Sequence[bool], advantage: float, weight: float
) -> Sample:
    """One branch as streams of equal length; tokens of turns that are not fresh are context."""
    ids: list[int] = []
    mask: list[bool] = []
    logprobs: list[float] = []
    versions: list[int] = []
    for turn, is_fresh in zip(branch, fresh, strict=True):
        assert turn.completion is not None
        given = len(turn.prompt_ids) - len(ids)
        output = turn.completion.output_ids
        ids += turn.prompt_ids[len(ids) :] + output
        mask += [False] * given + [is_fresh] * len(output)
        logprobs += [0.0] * given
        versions += [-1] * given
        if is_fresh:
            logprobs += turn.completion.logprobs
            versions += [s.version for s in turn.completion.spans for _ in range(s.count)]
        else:
            logprobs += [0.0] * len(output)
            versions += [-1] * len(output)
    return Sample(
        group_id=group_id,
        rollout_id=branch[0].rollout_id,
        ids=tuple(ids),
        mask=tuple(mask),
        logprobs=tuple(logprobs),
        versions=tuple(versions),
        advantage=advantage,
        weight=weight,
        temperature=branch[-1].temperature,
    )


def _taint(chain: Sequence[Turn]) -> str | None:
    """Why a chain cannot be trained; None if it can."""
    stream: tuple[int, ...] = ()
    for turn in chain:
        if turn.state is not TurnState.DONE or turn.completion is None:
            return "lost"
        if turn.auxiliary:
            return "auxiliary"  # answered for the agent's own ends
        done = turn.completion
        if turn.prompt_ids[: len(stream)] != stream:
            return "broken_prefix"
        spans = sum(span.count for span in done.spans)
        if not (len(done.output_ids) == len(done.logprobs) == spans):
            return "misaligned"
        if turn.temperature != chain[-1].temperature or turn.temperature <= 0:
            return "temperature"  # the recorded logprobs would belong to other distributions
        if not all(math.isfinite(p) and p <= 1e-3 for p in done.logprobs):
            return "nonfinite"
        stream = turn.prompt_ids + done.output_ids
    return None
