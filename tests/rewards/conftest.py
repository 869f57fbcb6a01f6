"""A small database, verifiers on it, and tasks with references."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from tradewind.rewards.resultset import ResultSet, ResultSetOptions


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "shop.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            """
            create table orders (order_id integer primary key, city text, price real);
            insert into orders values (1, 'Oslo', 1.5), (2, 'Rome', 2.5), (3, 'Oslo', 4.0);
            create table odd (t text, b blob);
            insert into odd values (null, x'00ff');
            """
        )
        connection.commit()
    return path


@pytest.fixture
def reward(database: Path):
    verifier = ResultSet(ResultSetOptions(database=database, deadline_s=5.0))
    yield verifier
    verifier.close()
