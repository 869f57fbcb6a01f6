"""Training tasks that are set aside: on them the policy was caught too often to try again.

A task on which exploits pay is a fault of the task or of its box. Trying it for ever would fill
slots with groups that are thrown away; so after some rejections its draws rest, by name, until a
person has looked and restores it.
"""

from __future__ import annotations

from sqlalchemy import Connection, func, select, update

from tradewind.ledger.database import Database, put
from tradewind.ledger.events import note
from tradewind.ledger.run import read_meta
from tradewind.ledger.tables import draws, groups, run
from tradewind.types.group import GroupState

CAUGHT = "caught: "
"""How the cause of a group begins that a tripwire rejected."""
ASIDE = "aside"
"""State of a draw that rests."""

_KEY = "tasks_set_aside"


class Aside(Database):
    """Read by status; `restore_tasks` is a person's."""

    def set_aside(self) -> dict[str, str]:
        """Tasks that are not drawn any more, each with its cause."""
        with self.read() as conn:
            return tasks_aside(conn)

    def restore_tasks(self, names: list[str] | None = None) -> list[str]:
        """Draw these tasks again (None: all that are set aside); those that were restored."""
        with self.write() as conn:
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
            put(conn, run, {"key": _KEY}, {"value": kept})
        return back


def tasks_aside(conn: Connection) -> dict[str, str]:
    """Tasks that are set aside, each with its cause."""
    return dict(read_meta(conn, _KEY) or {})


def aside_if_caught_often(conn: Connection, task: str, most: int, cause: str) -> None:
    """Set a task aside if this was the `most`-th of its groups that a tripwire rejected."""
    caught = conn.execute(
        select(func.count())
        .select_from(groups)
        .where(
            groups.c.task_id == task,
            groups.c.state == GroupState.REJECTED.value,
            groups.c.cause.startswith(CAUGHT, autoescape=True),
        )
    ).scalar_one()
    if caught % most:  # after a person has restored it, it has as many tries again
        return
    put(conn, run, {"key": _KEY}, {"value": {**tasks_aside(conn), task: cause}})
    conn.execute(
        update(draws).where(draws.c.task_id == task, draws.c.state == "queued").values(state=ASIDE)
    )
    detail = (
        f"{caught} of its groups were caught, it is not drawn until restored; the last: {cause}"
    )
    note(conn, "task.set_aside", task, detail)
