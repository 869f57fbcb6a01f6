"""A group: G rollouts of one task, trained together or not at all."""

from __future__ import annotations

from enum import StrEnum

from tradewind.types.ids import GroupId, RolloutId
from tradewind.types.record import Record
from tradewind.types.score import Score
from tradewind.types.task import Task
from tradewind.types.turn import Turn


class Purpose(StrEnum):
    """Why rollouts run."""

    TRAIN = "train"
    EVAL = "eval"


class GroupState(StrEnum):
    """A group's life. Every group ends in CONSUMED, EVALUATED or REJECTED; none disappears."""

    OPEN = "open"
    """Rollouts wait, run or are being graded."""
    CLOSED = "closed"
    """All scores are there and credit is written; the trainer may claim it."""
    CONSUMED = "consumed"
    """Committed with a step, in the same transaction."""
    EVALUATED = "evaluated"
    """Closed with purpose EVAL; never trained."""
    REJECTED = "rejected"
    """Given up, with a cause: too stale when it was to be trained, too many nulls, caught by a
    tripwire, tokens lost. A training task is drawn again."""


class Group(Record):
    """Example: `Group(group_id="g000017", task_id="t-0007", purpose="train", size=8, ...)`."""

    group_id: GroupId
    task_id: str
    purpose: Purpose
    size: int
    """How many non-null rollouts it must hold to close."""
    attempt: int = 0
    """How many rejected groups of the same draw came before it."""
    eval_name: str | None = None
    """Which evaluation it belongs to; None for training."""
    opened_version: int
    """Newest committed policy version when it was opened; of an evaluation, the one asked for."""
    state: GroupState
    cause: str | None = None
    """Why it was rejected; None otherwise."""


class GradedRollout(Record):
    """One rollout of a closed group, with all that training needs."""

    rollout_id: RolloutId
    turns: tuple[Turn, ...]
    """In the order of arrival; forks included."""
    scores: tuple[Score, ...]
    reward: float | None
    """Composed reward; None if the rollout is null (then it has no credit)."""
    advantage: float | None
    """Credit per token of this rollout; None exactly when `reward` is None."""


class ClosedGroup(Record):
    """What the trainer claims."""

    group: Group
    task: Task
    rollouts: tuple[GradedRollout, ...]

    def oldest_version(self) -> int:
        """The oldest weight version of any sampled token in the group (promise R8)."""
        return min(turn.oldest_version() for r in self.rollouts for turn in r.turns)
