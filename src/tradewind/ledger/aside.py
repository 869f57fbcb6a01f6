"""Training tasks that are set aside: caught too often on them, or never a valid rollout of them.

A task on which exploits pay is a fault of the task or of its box; one whose environment or verifier
fails every time, while others are trained, is invalid. Trying it for ever would fill slots with
groups that are thrown away; so after some rejections its draws rest, by name, until a person has
looked and restores it.
"""

from __future__ import annotations

from sqlalchemy import Connection, func, select, update

from tradewind.ledger.database import Database
from tradewind.ledger.events import note
from tradewind.ledger.rows import read_meta, write_meta
from tradewind.ledger.tables import draws, groups
from tradewind.types.group import GroupState

CAUGHT = "caught: "
"""How the cause of a group begins that a tripwire rejected."""
INVALID = "invalid: "
"""How the cause of a group begins whose nulls came from the environment or its verifier."""
ASIDE = "aside"
"""State of a draw that rests."""

_KEY, _RESTORED = "tasks_set_aside", "tasks_restored"
"""Of the run table: causes by task; the newest group when a task was restored."""


class Aside(Database):
    """Read by status; `restore_tasks` is a person's."""

    def set_aside(self) -> dict[str, str]:
        """Tasks that are not drawn any more, each with its cause."""
        with self.read() as conn:
            return tasks_aside(conn)

    def restore_tasks(self, names: list[str] | None = None) -> list[str]:
        """Draw these tasks again (None: all that are set aside); those that were restored."""
        with self.write(durable=True) as conn:
            known = tasks_aside(conn)
            back = [task for task in known if names is None or task in names]
            for task in back:
                conn.execute(
                    update(draws)
                    .where(draws.c.task_id == task, draws.c.state == ASIDE)
                    .values(state="queued", not_before=0)
                )
                note(conn, "task.restored", task, "it is drawn again")
            kept = {task: cause for task, cause in known.items() if task not in back}
            write_meta(conn, _KEY, kept)
            newest = conn.execute(select(func.max(groups.c.number))).scalar_one()
            since = {**(read_meta(conn, _RESTORED) or {}), **dict.fromkeys(back, newest)}
            write_meta(conn, _RESTORED, since)
        return back


def tasks_aside(conn: Connection) -> dict[str, str]:
    """Tasks that are set aside, each with its cause."""
    return dict(read_meta(conn, _KEY) or {})


def aside_if_caught_often(conn: Connection, task: str, most: int, cause: str) -> None:
    """Set a task aside if this was the `most`-th of its groups that a tripwire rejected."""
    caught = len(_rejected(conn, task, CAUGHT))
    if caught % most == 0:  # after a person has restored it, it has as many tries again
        _set_aside(conn, task, cause, f"{caught} of its groups were caught")


def aside_if_invalid(conn: Connection, task: str, most: int, cause: str) -> None:
    """Set a task aside if `most` groups of it in a row were invalid, and other tasks were trained
    meanwhile: what fails everywhere is no task's fault.
    """
    good = groups.c.state.in_((GroupState.CLOSED.value, GroupState.CONSUMED.value))
    last = select(func.max(groups.c.number)).where(groups.c.task_id == task, good)
    restored = (read_meta(conn, _RESTORED) or {}).get(task)
    after = max(
        (n for n in (conn.execute(last).scalar_one(), restored) if n is not None), default=-1
    )
    streak = _rejected(conn, task, INVALID, after)
    if len(streak) < most:
        return
    began = select(groups.c.opened_at).where(groups.c.number == streak[0]).scalar_subquery()
    others = select(groups.c.number).where(
        groups.c.task_id != task, good, groups.c.closed_at > began
    )
    if conn.execute(others.limit(1)).first() is not None:
        said = f"{len(streak)} groups of it in a row came back null while others were trained"
        _set_aside(conn, task, INVALID + cause, said)


def _rejected(conn: Connection, task: str, prefix: str, after: int = -1) -> list[int]:
    """Numbers of a task's groups after one that were rejected by such a cause, in order."""
    query = (
        select(groups.c.number)
        .where(
            groups.c.task_id == task,
            groups.c.state == GroupState.REJECTED.value,
            groups.c.cause.startswith(prefix, autoescape=True),
            groups.c.number > after,
        )
        .order_by(groups.c.number)
    )
    return list(conn.execute(query).scalars())


def _set_aside(conn: Connection, task: str, cause: str, said: str) -> None:
    write_meta(conn, _KEY, {**tasks_aside(conn), task: cause})
    conn.execute(
        update(draws).where(draws.c.task_id == task, draws.c.state == "queued").values(state=ASIDE)
    )
    note(conn, "task.set_aside", task, f"{said}, it is not drawn until restored; the last: {cause}")
