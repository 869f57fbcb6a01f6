"""The database is the same for the same seed, and its door only lets reading through."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from orderdesk import product

TABLES = ("suppliers", "products", "customers", "orders", "items", "shipments")


def _dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def test_the_same_seed_gives_the_same_rows_and_another_seed_does_not(tmp_path: Path) -> None:
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        product.create(tmp_path / name, seed)
    assert _dump(tmp_path / "a") == _dump(tmp_path / "b") != _dump(tmp_path / "c")


def test_creating_it_again_replaces_it(tmp_path: Path) -> None:
    path = tmp_path / "desk"
    path.write_text("not a database")
    product.create(path, 7)
    assert product.query(path, "select count(*) from products").rows == [[60]]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["desk"]


def test_it_holds_a_few_thousand_rows_in_related_tables(desk: Any) -> None:
    counts = [product.query(desk.database, f"select count(*) from {t}").rows for t in TABLES]
    assert all(rows and rows[0][0] for rows in counts)
    assert 3000 < sum(rows[0][0] for rows in counts if rows) < 10000
    joined = "select count(*) from orders natural join items natural join products"
    assert product.query(desk.database, joined).rows == counts[TABLES.index("items")]


@pytest.mark.parametrize(
    "sql",
    [
        "delete from orders",
        "insert into orders values (9999, 1, '2025-01-01', 'open')",
        "drop table orders",
        "create table mine (a)",
        "attach database 'mine.sqlite' as mine",
        "pragma query_only = off",
        "vacuum into 'mine.sqlite'",
        "select 1; delete from orders",
    ],
)
def test_nothing_but_reading_is_let_through(
    desk: Any, sql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = desk.database.read_bytes()
    answer = product.query(desk.database, sql)
    assert answer.rows is None
    assert answer.error
    assert desk.database.read_bytes() == before
    assert list(tmp_path.iterdir()) == []


def test_a_query_that_never_ends_is_cut(desk: Any) -> None:
    endless = "with recursive n(i) as (select 1 union all select i from n) select count(*) from n"
    start = time.monotonic()
    assert product.query(desk.database, endless, max_seconds=0.1).error == "out of time"
    assert time.monotonic() - start < 2


def test_too_many_rows_and_too_large_cells_are_errors(desk: Any) -> None:
    assert product.query(desk.database, "select * from orders").error == "more than 200 rows"
    assert product.query(desk.database, "select zeroblob(9000000)").error == (
        "string or blob too big"
    )


@pytest.mark.parametrize("sql", ["", "?", "select :a", "select nought", "select '\0'", "selec 1"])
def test_broken_sql_is_an_answer_not_an_exception(desk: Any, sql: str) -> None:
    answer = product.query(desk.database, sql)
    assert answer.error or answer.rows == []


def test_bytes_become_text_that_json_can_carry(desk: Any) -> None:
    assert product.query(desk.database, "select x'00ff', 1.5, null").rows == [["00ff", 1.5, None]]


def test_a_missing_database_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"make one with build\.py"):
        product.query(tmp_path / "none", "select 1")
