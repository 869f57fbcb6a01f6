"""Counts that say where the run stands, in one snapshot."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, func, select

from tradewind.ledger.database import Database
from tradewind.ledger.groups import newest_version
from tradewind.ledger.tables import draws, groups, keys, rollouts, steps, tasks, turns, user_chats
from tradewind.ledger.withdrawn import read_returns
from tradewind.types.group import GroupState, Purpose
from tradewind.types.record import Record
from tradewind.types.task import Split
from tradewind.types.turn import TurnState


class Counts(Record):
    """Where the run stands."""

    version: int
    """Newest committed."""
    returned: int = 0
    """Version that the newest return made: older ones are withdrawn, or have the same weights."""
    steps: int
    draws: int
    """Fresh draws so far."""
    epoch: float
    """Fresh draws / training tasks."""
    training_groups: dict[str, int]
    """By `GroupState`."""
    eval_groups: dict[str, int]
    rollouts: dict[str, int]
    """By state: waiting, running, finished (waits for the grader), graded, cancelled."""
    nulls: int
    """Graded rollouts without a value."""
    running_at: dict[str, int]
    """Running rollouts by worker."""
    evals_waiting_for: tuple[int, ...]
    """Versions that waiting evaluation rollouts ask for."""
    leases: int
    turns: dict[str, int]
    tokens: int
    """Sampled in answered turns."""
    turns_delivered: int
    user_chats: int


class Status(Database):
    """Read by the controller's status route and by the live view."""

    def counts(self) -> Counts:
        """All counts, from one snapshot."""
        with self.read() as conn:
            n_draws = _count(conn, draws)
            n_tasks = _count(conn, tasks, tasks.c.split == Split.TRAIN.value)
            return Counts(
                version=newest_version(conn),
                returned=max(read_returns(conn), default=0),
                steps=_count(conn, steps),
                draws=n_draws,
                epoch=n_draws / n_tasks if n_tasks else 0.0,
                training_groups=_by(conn, groups.c.state, groups.c.purpose == Purpose.TRAIN.value),
                eval_groups=_by(conn, groups.c.state, groups.c.purpose == Purpose.EVAL.value),
                rollouts=_by(conn, rollouts.c.state),
                nulls=_count(conn, rollouts, rollouts.c.null == 1),
                running_at=_by(conn, rollouts.c.worker, rollouts.c.state == "running"),
                evals_waiting_for=_versions_waited_for(conn),
                leases=_count(conn, keys, keys.c.kind == "result"),
                **_turns(conn),
                user_chats=_count(conn, user_chats),
            )


def _count(conn: Connection, table: Any, *where: Any) -> int:
    return int(conn.execute(select(func.count()).select_from(table).where(*where)).scalar_one())


def _by(conn: Connection, column: Any, *where: Any) -> dict[str, int]:
    query = select(column, func.count()).where(*where).group_by(column).order_by(column)
    return {str(key): count for key, count in conn.execute(query)}


def _turns(conn: Connection) -> dict[str, Any]:
    """All that is counted of turns, in one pass over an index."""
    by_state: dict[str, int] = {}
    tokens = delivered = 0
    rows = conn.execute(
        select(turns.c.state, turns.c.delivered, func.count(), func.sum(turns.c.tokens)).group_by(
            turns.c.state, turns.c.delivered
        )
    )
    for state, reached, count, sampled in rows:
        by_state[state] = by_state.get(state, 0) + count
        tokens += int(sampled or 0) if state == TurnState.DONE.value else 0
        delivered += count if reached else 0
    return {"turns": by_state, "tokens": tokens, "turns_delivered": delivered}


def _versions_waited_for(conn: Connection) -> tuple[int, ...]:
    query = (
        select(groups.c.opened_version)
        .join(rollouts, rollouts.c.group_id == groups.c.group_id)
        .where(
            groups.c.purpose == Purpose.EVAL.value,
            groups.c.state == GroupState.OPEN.value,
            rollouts.c.state == "waiting",
        )
        .distinct()
        .order_by(groups.c.opened_version)
    )
    return tuple(conn.execute(query).scalars())
