"""What is left of a run for whoever looks again: graded rollouts, and scores that they got later.

The scores of `scores.py` are what a gradient came from: written once, never changed. A rescoring
stands beside them, numbered, with the composition that it used; there may be any number of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlalchemy import Select, func, insert, select

from tradewind.ledger.compositions import composition_data
from tradewind.ledger.database import AnyRow, Database
from tradewind.ledger.run import task_of
from tradewind.ledger.scores import outcome_of, scores_of_group
from tradewind.ledger.tables import (
    credits,
    groups,
    outcomes,
    rescored,
    rescorings,
    rollouts,
    tasks,
)
from tradewind.types.group import Purpose
from tradewind.types.ids import GroupId, RolloutId
from tradewind.types.outcome import Outcome
from tradewind.types.record import Json
from tradewind.types.score import Score
from tradewind.types.task import Task


@dataclass(frozen=True)
class StoredRollout:
    """One graded rollout as the record has it."""

    rollout_id: RolloutId
    outcome: Outcome
    """With the status and detail as they count."""
    scores: tuple[Score, ...]
    """The first ones: what training used."""
    reward: float | None
    """None if it is null, or if its group has not closed."""


@dataclass(frozen=True)
class StoredGroup:
    """The graded rollouts of one group, in the order of their index."""

    group_id: GroupId
    task: Task
    purpose: Purpose
    composition: Json | None
    """What its reward was made of; None for a group without one."""
    factors: dict[str, float]
    """The trust of each judged signal when it closed."""
    rollouts: tuple[StoredRollout, ...]


@dataclass(frozen=True)
class Rescored:
    """What one rollout got when it was scored again."""

    rollout_id: RolloutId
    scores: tuple[Score, ...]
    reward: float | None


class Stored(Database):
    """Called by `tradewind rewards`, by whoever wants to know what another reward had said."""

    def stored_groups(self, purpose: Purpose | None = None) -> Iterator[StoredGroup]:
        """Every group with a graded rollout, in the order in which they were opened.

        One transaction per group, so that a run may go on meanwhile.
        """
        query = select(groups.c.group_id).order_by(groups.c.number)
        if purpose is not None:
            query = query.where(groups.c.purpose == purpose.value)
        with self.read() as conn:
            names = list(conn.execute(query).scalars())
        for name in names:
            found = self.stored_group(name)
            if found.rollouts:
                yield found

    def write_rescoring(self, version: str, data: Json, new: Iterable[Rescored]) -> int:
        """Keep a rescoring beside all others; its number. Nothing that is there changes."""
        rows = list(new)
        with self.write(durable=True) as conn:
            newest = conn.execute(select(func.max(rescorings.c.rescoring))).scalar_one()
            number = 0 if newest is None else newest + 1
            conn.execute(
                insert(rescorings).values(
                    rescoring=number, composition=version, data=data, at=time.time()
                )
            )
            for row in rows:
                conn.execute(
                    insert(rescored).values(
                        rescoring=number,
                        rollout_id=row.rollout_id,
                        reward=row.reward,
                        scores=[score.model_dump(mode="json") for score in row.scores],
                    )
                )
        return number

    def rescoring(self, number: int) -> tuple[str, list[Rescored]]:
        """The composition's version and the rows of one; raises `KeyError` if there is none."""
        with self.read() as conn:
            version = conn.execute(
                select(rescorings.c.composition).where(rescorings.c.rescoring == number)
            ).scalar_one_or_none()
            if version is None:
                raise KeyError(number)
            query = select(rescored).where(rescored.c.rescoring == number)
            rows = conn.execute(query.order_by(rescored.c.rollout_id)).all()
        return version, [_rescored_of(row) for row in rows]

    def stored_group(self, group: GroupId) -> StoredGroup:
        """One group with its graded rollouts; there must be such a group."""
        with self.read() as conn:
            row = conn.execute(
                select(groups, *(tasks.c[name] for name in _TASK))
                .join(tasks, tasks.c.task_id == groups.c.task_id)
                .where(groups.c.group_id == group)
            ).one()
            scores = scores_of_group(conn, group)
            ended = conn.execute(_ended(group)).all()
            data = composition_data(conn, row.composition)
        return StoredGroup(
            group_id=group,
            task=task_of(row),
            purpose=Purpose(row.purpose),
            composition=data,
            factors=row.factors or {},
            rollouts=tuple(
                StoredRollout(end.rollout_id, outcome_of(end), scores[end.rollout_id], end.reward)
                for end in ended
            ),
        )


_TASK = ("kind", "split", "input", "reference")


def _ended(group: GroupId) -> Select[*tuple[object, ...]]:
    """Graded rollouts with outcome and, if their group has closed, reward."""
    return (
        select(
            rollouts.c.rollout_id,
            outcomes.c.status,
            outcomes.c.detail,
            outcomes.c.reported,
            credits.c.reward,
        )
        .join(outcomes, outcomes.c.rollout_id == rollouts.c.rollout_id)
        .outerjoin(credits, credits.c.rollout_id == rollouts.c.rollout_id)
        .where(rollouts.c.group_id == group, rollouts.c.state == "graded")
        .order_by(rollouts.c.idx)
    )


def _rescored_of(row: AnyRow) -> Rescored:
    scores = tuple(Score.model_validate(score) for score in row.scores)
    return Rescored(row.rollout_id, scores, row.reward)
