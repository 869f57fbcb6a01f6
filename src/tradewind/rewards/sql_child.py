"""Runs SQL for a verifier, in a process of its own; standard library only, started by its path.

    launch.py ... sql_child.py DATABASE
    stdin   {"sql": str, "max_steps": int, "max_rows": int, "max_bytes": int}     one per line
    stdout  {"columns": int, "rows": [[cell, ...], ...]} | {"error": str}         one per line

A cell is null, an integer, a number, a text, or `[hex]` for a blob. What may run is one statement
that only reads: no ATTACH, no PRAGMA, no writing (an authorizer, on a read-only file).
"""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

_STEPS_PER_CALL = 10_000
_READING = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}


def connect(database: str) -> sqlite3.Connection:
    """A connection that can read `database` and nothing else."""
    uri = f"{Path(database).resolve().as_uri()}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None)
    connection.execute("PRAGMA query_only = ON")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1_000_000)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    connection.set_authorizer(_authorize)
    return connection


def run(connection: sqlite3.Connection, question: dict[str, Any]) -> dict[str, Any]:
    """The rows of one query, or why there are none."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += _STEPS_PER_CALL
        return int(steps > question["max_steps"])

    connection.set_progress_handler(count, _STEPS_PER_CALL)
    try:
        cursor = connection.execute(question["sql"])
        columns = len(cursor.description or ())
        return _rows(cursor, columns, question["max_rows"], question["max_bytes"])
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
        slow = "interrupted" in str(error)
        return {"error": "too slow" if slow else f"{type(error).__name__}: {error}"}
    except MemoryError:
        return {"error": "out of memory"}


def _rows(cursor: sqlite3.Cursor, columns: int, max_rows: int, max_bytes: int) -> dict[str, Any]:
    if columns == 0:
        return {"error": "it is not a query"}
    rows: list[list[Any]] = []
    size = 0
    for row in cursor:
        rows.append([[cell.hex()] if isinstance(cell, bytes) else cell for cell in row])
        size += sum(len(c) if isinstance(c, str | bytes) else 8 for c in row)
        if len(rows) > max_rows:
            return {"error": f"more than {max_rows} rows"}
        if size > max_bytes // 8:  # JSON may write one character as six
            return {"error": "the result is too large"}
    return {"columns": columns, "rows": rows}


def _authorize(action: int, *_details: str | None) -> int:
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY


def main() -> None:
    """Answer until the parent closes the pipe."""
    connection = connect(sys.argv[1])
    for line in sys.stdin.buffer:
        answer = json.dumps(run(connection, json.loads(line)))
        sys.stdout.buffer.write(answer.encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
