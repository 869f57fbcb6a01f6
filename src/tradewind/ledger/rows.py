"""Statements that SQLite and PostgreSQL both understand: insert unless there, set, and the run
table's values by key.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from sqlalchemy import Connection, Insert, Table, insert, select
from sqlalchemy.dialects import postgresql, sqlite

from tradewind.ledger.tables import run


def insert_new(conn: Connection, table: Table, values: Mapping[str, Any]) -> bool:
    """Insert a row unless its key is taken; whether it was inserted."""
    result = conn.execute(_insertion(conn.dialect.name, table), values)
    if conn.dialect.name == "postgresql":
        # Its driver does not count the rows of such an insert, so the row says that it is there.
        return result.first() is not None
    return result.rowcount == 1


@cache
def _insertion(dialect: str, table: Table) -> Insert:
    """Made once: with every call of the model, building it would cost as much as running it."""
    if dialect == "postgresql":
        key = next(iter(table.primary_key.columns))
        return postgresql.insert(table).on_conflict_do_nothing().returning(key)
    return sqlite.insert(table).on_conflict_do_nothing()


def put(conn: Connection, table: Table, key: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Set the row with this primary key to these values, whether or not it exists."""
    matches = [table.c[name] == value for name, value in key.items()]
    if conn.execute(table.update().where(*matches).values(values)).rowcount == 0:
        conn.execute(insert(table).values({**key, **values}))


def read_meta(conn: Connection, key: str) -> Any:
    """One value of the run table; None if nobody wrote it."""
    return conn.execute(select(run.c.value).where(run.c.key == key)).scalar_one_or_none()


def write_meta(conn: Connection, key: str, value: Any) -> None:
    """Set one value of the run table."""
    put(conn, run, {"key": key}, {"value": value})
