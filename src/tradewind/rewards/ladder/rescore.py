"""Stored rollouts, scored again: what would another reward have said? No inference, no change.

ledger: outcomes, turns ──► panel of the new composition ──► compose_group ──► reward per rollout
                                                                                     │
        the scores that training used ──────────────── compared, signal by signal ───┘
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

from tradewind.ledger.payloads import LostPayload
from tradewind.ledger.stored import Rescored, StoredGroup, StoredRollout
from tradewind.rewards.compose import compose_group
from tradewind.rewards.config import Composition
from tradewind.rewards.panel import ATTEMPTS, Panel, ReadTurns
from tradewind.rewards.trust.statistics import Interval, bootstrap
from tradewind.types.episode import Episode
from tradewind.types.record import Json, Record
from tradewind.types.score import Score
from tradewind.types.task import Task

SEED = 0
"""Of the bootstrap: the same rollouts give the same interval."""


class Change(Record):
    """One verdict that is not what it was."""

    rollout_id: str
    task_id: str
    signal: str
    before: float | None
    after: float | None
    cause_before: str | None = None
    cause_after: str | None = None


class Count(Record):
    """Of one signal, or of one kind of task: how many verdicts there are, and how many changed."""

    verdicts: int = 0
    changed: int = 0
    nulls_before: int = 0
    nulls_after: int = 0


class Rescoring(Record):
    """What came of scoring again."""

    composition: str
    """Version of the one that was used now."""
    rollouts: int
    groups: int
    signals: dict[str, Count]
    """By name. A signal that was not there before has `verdicts` of 0 to compare."""
    kinds: dict[str, Count]
    """The same by kind of task, over all signals that were there before."""
    new_signals: tuple[str, ...] = ()
    gone_signals: tuple[str, ...] = ()
    rewards: int = 0
    """Rollouts with a reward before and now, over which the next three are."""
    reward_before: float | None = None
    reward_after: float | None = None
    difference: tuple[float, float] | None = None
    """95 % interval of the mean difference, by bootstrap over tasks."""
    rewards_changed: int = 0
    changes: tuple[Change, ...] = ()
    """All of them, in the order of rollouts."""


def rescore(
    stored: Iterable[StoredGroup],
    composition: Composition,
    read_turns: ReadTurns,
    *,
    parallel: int = 2,
    attempts: int = ATTEMPTS,
) -> Iterator[tuple[StoredGroup, list[Rescored]]]:
    """Each group with what its rollouts get now, in their order.

    Groups are scored `parallel` at a time, each by a panel of its own, whose children are killed
    when a deadline passes or the iteration ends. Judged signals count with the trust that they had
    when the group closed. Raises `UserError` if a signal cannot be opened.
    """
    panels: list[Panel] = []
    free: SimpleQueue[Panel] = SimpleQueue()
    try:
        for _ in range(parallel):
            panels.append(Panel(composition))
            free.put(panels[-1])

        def one(group: StoredGroup) -> tuple[StoredGroup, list[Rescored]]:
            panel = free.get()
            try:
                return group, _again(group, panel, read_turns, attempts)
            finally:
                free.put(panel)

        with ThreadPoolExecutor(parallel, thread_name_prefix="rescore") as threads:
            yield from threads.map(one, stored)
    finally:
        for panel in panels:
            panel.close()


def compare(
    composition: Composition, pairs: Sequence[tuple[StoredGroup, Sequence[Rescored]]]
) -> Rescoring:
    """What changed."""
    names = {signal.name for signal in composition.signals}
    before = {s.source for group, _ in pairs for r in group.rollouts for s in r.scores}
    signals: dict[str, list[Change]] = {name: [] for name in sorted(names & before)}
    kinds: dict[str, list[Change]] = {}
    compared: list[Change] = []
    for group, after in pairs:
        for change in _of_group(group, after):
            signals[change.signal].append(change)
            kinds.setdefault(group.task.kind, []).append(change)
            compared.append(change)
    return Rescoring(
        composition=composition.version,
        rollouts=sum(len(group.rollouts) for group, _ in pairs),
        groups=len(pairs),
        signals={name: _count(found) for name, found in signals.items()},
        kinds={kind: _count(found) for kind, found in sorted(kinds.items())},
        new_signals=tuple(sorted(names - before)),
        gone_signals=tuple(sorted(before - names)),
        changes=tuple(change for change in compared if change.before != change.after),
        **_rewards(pairs),
    )


def _again(
    group: StoredGroup, panel: Panel, read_turns: ReadTurns, attempts: int
) -> list[Rescored]:
    graded = [_scored(r, group.task, panel, read_turns, attempts) for r in group.rollouts]
    composed = compose_group(panel.composition, graded, group.factors)
    rewards = composed.rewards or (None,) * len(graded)
    return [
        Rescored(rollout.rollout_id, tuple(scores), reward)
        for rollout, scores, reward in zip(group.rollouts, graded, rewards, strict=True)
    ]


def _scored(
    rollout: StoredRollout, task: Task, panel: Panel, read_turns: ReadTurns, attempts: int
) -> list[Score]:
    """Nulls if its turns are lost."""
    name = rollout.rollout_id
    try:
        turns = panel.read(read_turns, name)
    except LostPayload as error:
        return panel.lost(name, error)
    episode = Episode(rollout_id=name, task=task, outcome=rollout.outcome, turns=turns)
    return panel.score(episode, attempts)


def _of_group(group: StoredGroup, after: Sequence[Rescored]) -> Iterator[Change]:
    """Every verdict that there was before and is now, changed or not."""
    for rollout, now in zip(group.rollouts, after, strict=True):
        old = {score.source: score for score in rollout.scores}
        for score in now.scores:
            if (was := old.get(score.source)) is not None:
                yield Change(
                    rollout_id=rollout.rollout_id,
                    task_id=group.task.task_id,
                    signal=score.source,
                    before=was.value,
                    after=score.value,
                    cause_before=was.cause,
                    cause_after=score.cause,
                )


def _rewards(pairs: Sequence[tuple[StoredGroup, Sequence[Rescored]]]) -> Json:
    by_task: dict[str, list[tuple[float, float]]] = {}
    for group, after in pairs:
        for rollout, now in zip(group.rollouts, after, strict=True):
            if rollout.reward is not None and now.reward is not None:
                by_task.setdefault(group.task.task_id, []).append((rollout.reward, now.reward))
    both = [pair for found in by_task.values() for pair in found]
    if not both:
        return {}
    return {
        "rewards": len(both),
        "reward_before": sum(old for old, _ in both) / len(both),
        "reward_after": sum(new for _, new in both) / len(both),
        "rewards_changed": sum(old != new for old, new in both),
        "difference": _difference(list(by_task.values())),
    }


def _difference(tasks: Sequence[Sequence[tuple[float, float]]]) -> Interval | None:
    def mean(sample: Sequence[Sequence[tuple[float, float]]]) -> float:
        found = [new - old for task in sample for old, new in task]
        return sum(found) / len(found)

    return bootstrap(tasks, mean, SEED)


def _count(compared: Sequence[Change]) -> Count:
    return Count(
        verdicts=len(compared),
        changed=sum(change.before != change.after for change in compared),
        nulls_before=sum(change.before is None for change in compared),
        nulls_after=sum(change.after is None for change in compared),
    )
