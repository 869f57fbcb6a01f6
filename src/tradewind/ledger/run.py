"""What the run is: settings, tasks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, bindparam, func, insert, select

from tradewind.ledger.database import Database
from tradewind.ledger.rows import read_meta, write_meta
from tradewind.ledger.tables import draws, tasks
from tradewind.types.errors import Conflict
from tradewind.types.record import Json
from tradewind.types.task import Split, Task

_TASK = select(tasks).where(tasks.c.task_id == bindparam("of"))


class RunRecords(Database):
    """Called by `run` before anything else starts."""

    def create_run(self, meta: Json) -> None:
        """Write what the run is; `seed` (int) orders the draws.

        Repeating it with the same values does nothing; another value raises `Conflict`.
        """
        with self.write(durable=True) as conn:
            for key, value in meta.items():
                known = read_meta(conn, key)
                if known is not None and known != value:
                    raise Conflict(f"this run was created with {key} = {known!r}, not {value!r}")
                write_meta(conn, key, value)

    def meta(self, key: str, default: Any = None) -> Any:
        """One value that `create_run` or `set_meta` wrote."""
        with self.read() as conn:
            known = read_meta(conn, key)
        return default if known is None else known

    def set_meta(self, key: str, value: Any) -> None:
        """Write a value that may change during the run, such as `training_open`."""
        with self.write(durable=True) as conn:
            write_meta(conn, key, value)

    def add_tasks(self, new: Iterable[Task]) -> int:
        """Add tasks in their order; how many were new.

        Known ones are skipped if equal. Raises `Conflict` if a known id has other content, or if
        training tasks would be added after the first draw (it would change the epochs).
        """
        with self.write(durable=True) as conn:
            known = {task.task_id: task for task in _all_tasks(conn)}
            fresh = [task for task in new if known.get(task.task_id) != task]
            for task in fresh:
                if task.task_id in known:
                    raise Conflict(
                        f"task {task.task_id} is already in this run, with other content"
                    )
            drawn = conn.execute(select(func.count()).select_from(draws)).scalar_one()
            if drawn and any(task.split is Split.TRAIN for task in fresh):
                raise Conflict("training tasks cannot be added once drawing has begun")
            for position, task in enumerate(fresh, start=len(known)):
                conn.execute(
                    insert(tasks).values(position=position, **task.model_dump(mode="json"))
                )
        return len(fresh)

    def tasks(self, split: Split | None = None) -> list[Task]:
        """All tasks, or those of one split, in the order in which they were added."""
        with self.read() as conn:
            return [t for t in _all_tasks(conn) if split is None or t.split is split]


def read_task(conn: Connection, task_id: str) -> Task:
    """The task with this id."""
    return task_of(conn.execute(_TASK, {"of": task_id}).one())


def task_of(row: Any) -> Task:
    """A row of `tasks` as a record."""
    return Task(
        task_id=row.task_id,
        kind=row.kind,
        split=Split(row.split),
        input=row.input,
        reference=row.reference,
    )


def run_seed(conn: Connection) -> int:
    """The seed from which the order of draws and the sampling seeds follow."""
    return int(read_meta(conn, "seed") or 0)


def _all_tasks(conn: Connection) -> list[Task]:
    return [task_of(row) for row in conn.execute(select(tasks).order_by(tasks.c.position))]
