"""Nulls by task: where environments, graders or the platform fail, and what the policy did before.

A null escapes a bad score. So its rate is watched per task, and told apart by whether the model
had answered before: a policy that learns to break its environment shows there first.
"""

from __future__ import annotations

from sqlalchemy import Connection, func, select

from tradewind.ledger.database import Database
from tradewind.ledger.tables import groups, rollouts, scores, turns
from tradewind.types.record import Record
from tradewind.types.turn import TurnState


class NullRate(Record):
    """One task with nulls.

    Example: `NullRate(task_id="t7", rollouts=16, nulls=4, rate=0.25,
    causes={"env_error": 4}, after_answer=3, last="env_error: KeyError: 'sku'")`.
    """

    task_id: str
    rollouts: int
    """Graded ones, nulls included."""
    nulls: int
    rate: float
    """nulls / rollouts, in (0, 1]."""
    causes: dict[str, int]
    """By the cause's first word: env_error, grader_error, infra_error, ..."""
    after_answer: int
    """Nulls in which the model had answered at least once."""
    last: str
    """Cause of the latest one."""


class Nulls(Database):
    """Read by the controller's status route."""

    def null_rates(self, limit: int = 20) -> list[NullRate]:
        """The tasks with the most nulls, worst first."""
        count = func.count().label("n")
        worst = (
            select(groups.c.task_id, count)
            .join(rollouts, rollouts.c.group_id == groups.c.group_id)
            .where(rollouts.c.state == "graded", rollouts.c.null == 1)
            .group_by(groups.c.task_id)
            .order_by(count.desc(), groups.c.task_id)
            .limit(limit)
        )
        with self.read() as conn:
            return [_rate(conn, row.task_id, row.n) for row in conn.execute(worst).all()]


def _rate(conn: Connection, task: str, nulls: int) -> NullRate:
    graded = (
        select(func.count())
        .select_from(rollouts)
        .join(groups, groups.c.group_id == rollouts.c.group_id)
        .where(groups.c.task_id == task, rollouts.c.state == "graded")
    )
    answered = (
        select(turns.c.turn_id)
        .where(turns.c.rollout_id == rollouts.c.rollout_id, turns.c.state == TurnState.DONE.value)
        .correlate(rollouts)
        .exists()
    )
    rows = conn.execute(
        select(scores.c.cause, answered.label("answered"), rollouts.c.rollout_id)
        .join(rollouts, rollouts.c.rollout_id == scores.c.rollout_id)
        .join(groups, groups.c.group_id == rollouts.c.group_id)
        .where(groups.c.task_id == task, rollouts.c.null == 1, scores.c.value.is_(None))
        .order_by(rollouts.c.number, rollouts.c.idx, scores.c.source)
    ).all()
    causes: dict[str, int] = {}
    for row in rows:
        word = row.cause.partition(":")[0]
        causes[word] = causes.get(word, 0) + 1
    total = conn.execute(graded).scalar_one()
    return NullRate(
        task_id=task,
        rollouts=total,
        nulls=nulls,
        rate=round(nulls / total, 4),
        causes=causes,
        after_answer=len({row.rollout_id for row in rows if row.answered}),
        last=rows[-1].cause,
    )
