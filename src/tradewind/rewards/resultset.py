"""Verifier `resultset`: does the agent's SQL return what the reference SQL returns?

    task.reference   {"sql": str, "ordered": bool = false}
    outcome          artefacts["sql"]: str, what the agent settled on

Rows that the agent's side reports are not looked at: both queries run here, in a killable child.
What the policy can cause (no SQL, bad SQL, a query that is too slow or too large, or that kills
the child) is graded 0; only the verifier's own failure raises `VerifierFailed`.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from tradewind.rewards import sql_child
from tradewind.rewards.options import ReaderOptions
from tradewind.rewards.reference import Reference
from tradewind.rewards.rows import difference
from tradewind.rewards.sandbox.box import Box
from tradewind.rewards.sandbox.fair import fairly
from tradewind.rewards.sandbox.level import Level
from tradewind.rewards.sandbox.measure import require
from tradewind.rewards.sandbox.orphans import own_folder
from tradewind.rewards.sandbox.process import KillableProcess, NoAnswer
from tradewind.rewards.signal import Kind, Verdict, VerifierFailed
from tradewind.rewards.verifier import Verifier
from tradewind.types.errors import UserError
from tradewind.types.record import Json
from tradewind.types.task import Task

_ANY_TABLES = "SELECT count(*) FROM sqlite_master"


class ResultSetOptions(ReaderOptions):
    """What `resultset` takes."""

    database: Path | None = None
    """SQLite file on which candidate and reference run; read-only."""
    max_steps: int = Field(default=50_000_000, gt=0)
    """Limit of one query in instructions of SQLite's virtual machine: the same on every machine,
    so that a verdict of "too slow" does not depend on load."""
    max_rows: int = Field(default=1000, gt=0)
    """A query that returns more rows is wrong; a reference that does is refused."""


@dataclass(frozen=True)
class Table:
    """Rows, or why there are none."""

    columns: int = 0
    rows: tuple[tuple[Any, ...], ...] = ()
    error: str | None = None


class ResultSetReference(Reference):
    """What `resultset` reads of a task's reference."""

    sql: str
    ordered: bool = False
    """Whether the order of the rows counts."""

    @field_validator("sql")
    @classmethod
    def _there_is_one(cls, sql: str) -> str:
        if not sql.strip():
            raise ValueError("it is empty")
        return sql


class ResultSet(Verifier[ResultSetReference]):
    """Runs the agent's query and the reference's in a child that lives on."""

    version = "1"
    takes = ResultSetOptions
    kind = Kind.EXECUTABLE
    reads = ResultSetReference
    solution = "sql"

    def __init__(self, config: ResultSetOptions, level: Level | None = None) -> None:
        """Raises `UserError` if the database is missing or is none.

        `level` is the one to use, for measurements; otherwise the highest that holds.
        """
        super().__init__("sql")
        self._config = config
        self._level = require(config.minimum, "verifier 'resultset'") if level is None else level
        self._references: dict[str, Table] = {}
        self._copies = contextlib.ExitStack()
        database = _existing(config.database).resolve()
        self._process = self._reader(database)
        if not self._reads():  # another user may not, or a write-ahead log lies beside it
            self._process.close()
            folder = own_folder("sql")
            self._copies.callback(shutil.rmtree, folder, ignore_errors=True)
            self._process = self._reader(_copied(database, folder / database.name))

    def decide(self, answer: str, reference: ResultSetReference) -> Verdict:
        """1.0 if the result sets are the same, else 0.0 with the difference as its cause."""
        expected = self._reference(reference.sql)
        if expected.error is not None:
            raise VerifierFailed(f"the reference query failed: {expected.error}")
        got = self._candidate(answer, reference.sql)
        if got.error is not None:
            return Verdict(value=0.0, cause=got.error)
        return _verdict(expected, got, ordered=reference.ordered)

    def doubt(self, reference: ResultSetReference) -> str | None:
        """Whether the reference can be run, and returns rows that a blank answer would not."""
        expected = self._reference(reference.sql)
        if expected.error is not None:
            return f"its reference query fails ({expected.error})"
        if not expected.rows:
            return "its reference query returns no rows, so that an empty answer would pass"
        return None

    def result(self, task: Task) -> Json | None:
        """A query that writes the reference's rows out: the answer without the question."""
        known = self._reference(str(task.reference.get("sql", "")))
        rows = [", ".join(map(_literal, row)) for row in known.rows]
        if not rows:
            return None
        return {"sql": f"select {rows[0]}" if len(rows) == 1 else f"values ({'), ('.join(rows)})"}

    def close(self) -> None:
        """End the child."""
        self._process.close()
        self._copies.close()

    def _reader(self, database: Path) -> KillableProcess:
        box = Box(self._level, self._config.limits(), readable=[database])
        return KillableProcess(box, Path(sql_child.__file__), str(database))

    def _reads(self) -> bool:
        """Whether the child can read the database from where it is."""
        try:
            return self._run(_ANY_TABLES, self._config.deadline_s).error is None
        except NoAnswer:
            return False

    def _reference(self, sql: str) -> Table:
        """The reference's rows; the database is read-only, so they are computed once."""
        if sql not in self._references:
            try:
                self._references[sql] = self._run(sql, self._config.deadline_s)
            except NoAnswer as error:
                raise VerifierFailed(f"the reference query: {error}") from error
        return self._references[sql]

    def _candidate(self, sql: str, known_good: str) -> Table:
        """The candidate's rows; `known_good` shows whose fault it is if there are none."""
        return fairly(
            lambda seconds: self._run(sql, seconds),
            lambda: self._run(known_good, self._config.deadline_s),
            self._config.deadline_s,
        )

    def _run(self, sql: str, deadline_s: float) -> Table:
        config = self._config
        question = {
            "sql": sql,
            "max_steps": config.max_steps,
            "max_rows": config.max_rows,
            "max_bytes": config.max_bytes,
        }
        answer = self._process.ask(question, deadline_s)
        if "error" in answer:
            return Table(error=str(answer["error"]))
        return Table(answer["columns"], tuple(tuple(row) for row in answer["rows"]))


def _verdict(expected: Table, got: Table, *, ordered: bool) -> Verdict:
    if expected.columns != got.columns:
        what = f"{expected.columns} columns expected, {got.columns} returned"
        return Verdict(value=0.0, cause=what)
    differs = difference(expected.rows, got.rows, ordered=ordered)
    return Verdict(value=1.0 if differs is None else 0.0, cause=differs)


def _literal(cell: Any) -> str:
    """A cell as SQL writes it."""
    match cell:
        case None:
            return "null"
        case str():
            return "'" + cell.replace("'", "''") + "'"
        case [text]:
            return f"x'{text}'"
    return repr(cell)


def _copied(database: Path, to: Path) -> Path:
    """A copy that everybody may read."""
    with closing(sql_child.connect(str(database))) as source, closing(sqlite3.connect(to)) as copy:
        source.set_authorizer(None)
        source.backup(copy)
    to.chmod(0o444)
    return to


def _existing(database: Path | None) -> Path:
    if database is None:
        raise UserError(
            "the verifier 'resultset' needs a database",
            fix="set options.database of the signal to a SQLite file",
        )
    try:
        with closing(sql_child.connect(str(database))) as connection:
            connection.execute(_ANY_TABLES).fetchone()
    except sqlite3.Error as error:
        raise UserError(
            f"the grader's database cannot be read ({error})",
            value=str(database),
            fix="set options.database of the signal to an existing SQLite file",
        ) from error
    return database
