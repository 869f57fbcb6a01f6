"""The product: an order desk in SQLite, made from a seed, asked through a read-only door.

    suppliers --< products --< items >-- orders >-- customers
                                         orders --- shipments

Every key has the same name in both of its tables and no other column name is used twice, so
`natural join` always means what the people of the order desk think it means. It costs rows, too:
guests order without being customers (`customer_id` 0), and the house makes goods without a supplier
(`supplier_id` 0), so a query that joins more tables than it needs has another result.
"""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

CITIES = ("Paris", "London", "Berlin", "Rome", "Oslo", "Lima", "Cairo", "Tokyo")
CATEGORIES = ("tea", "coffee", "rice", "honey", "cocoa", "salt")
STATUSES = ("open", "paid", "late", "returned")
CARRIERS = ("rail", "sea", "air", "road")
COUNTRIES = ("Peru", "India", "Kenya", "China", "Brazil")
YEARS = (2022, 2023, 2024, 2025)

SCHEMA = """
create table suppliers (supplier_id integer primary key, company text not null, country text not null);
create table products (product_id integer primary key, title text not null unique,
  category text not null, price real not null, supplier_id integer not null);
create table customers (customer_id integer primary key, name text not null unique, city text not null);
create table orders (order_id integer primary key, customer_id integer not null,
  day text not null, status text not null);
create table items (order_id integer not null references orders,
  product_id integer not null references products, units integer not null,
  primary key (order_id, product_id));
create table shipments (order_id integer primary key references orders, carrier text not null,
  sent text not null);
"""  # noqa: E501  one table a line reads best

_GIVEN = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gia", "Hugo", "Ida", "Jon", "Kira", "Leo")
_FAMILY = (
    *("Abel", "Boer", "Cruz", "Dahl", "Egan", "Fox", "Gray", "Hill", "Ito", "Jung", "Klein"),
    *("Lund", "Moss", "Nash", "Ott", "Penn", "Reed", "Stone", "Voss", "West", "Young"),
)
_NOBODY = 0
_GUESTS, _OWN_GOODS = 0.2, 0.3
"""Shares of orders and of products without a row in customers and in suppliers."""
_GRADES = ("red", "gold", "green", "dark", "light", "royal", "old", "wild", "fine", "pure")

MAX_ROWS = 200
MAX_SECONDS = 2.0
MAX_BYTES = 1_000_000
_PROGRESS_EVERY = 10_000


@dataclass(frozen=True)
class Answer:
    """What the read-only door gives back: rows, or the error as the user would see it."""

    rows: list[list[object]] | None
    error: str | None = None


def create(path: Path, seed: int) -> None:
    """Write the order desk's database to `path`; the same seed gives the same rows."""
    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)
    with closing(sqlite3.connect(partial)) as connection:
        connection.executescript(SCHEMA)
        _fill(connection, random.Random(f"orderdesk {seed}"))
        connection.commit()
    os.replace(partial, path)  # noqa: PTH105  the atomic rename is the point


def query(path: Path, sql: str, *, max_seconds: float = MAX_SECONDS) -> Answer:
    """Run one SELECT against the database without being able to change anything."""
    with _read_only(path, max_seconds) as connection:
        try:
            rows = connection.execute(sql).fetchmany(MAX_ROWS + 1)
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
            # ValueError: a null character in the text. The rest is what SQLite says of bad SQL.
            return Answer(None, "out of time" if "interrupted" in str(error) else str(error))
    if len(rows) > MAX_ROWS:
        return Answer(None, f"more than {MAX_ROWS} rows")
    return Answer([[_plain(cell) for cell in row] for row in rows])


@contextmanager
def _read_only(path: Path, max_seconds: float) -> Iterator[sqlite3.Connection]:
    if not path.exists():
        raise FileNotFoundError(f"no order desk at {path}; make one with build.py --out DIR")
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    try:
        connection.execute("pragma query_only = on")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_BYTES)
        connection.set_authorizer(_only_reading)
        deadline = time.monotonic() + max_seconds
        connection.set_progress_handler(lambda: int(time.monotonic() > deadline), _PROGRESS_EVERY)
        yield connection
    finally:
        connection.close()


def _only_reading(action: int, *_details: str | None) -> int:
    """Refuse everything but reading: `attach` could otherwise create files beside the database."""
    reading = (
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_FUNCTION,
        sqlite3.SQLITE_RECURSIVE,
    )
    return sqlite3.SQLITE_OK if action in reading else sqlite3.SQLITE_DENY


def _plain(cell: object) -> object:
    """A cell as JSON can carry it."""
    return cell.hex() if isinstance(cell, bytes) else cell


def _fill(connection: sqlite3.Connection, rng: random.Random) -> None:
    suppliers = [(n, f"{_FAMILY[n]} & Co", COUNTRIES[n % len(COUNTRIES)]) for n in range(1, 11)]
    titles = [(c, f"{grade} {c}") for c in CATEGORIES for grade in _GRADES]
    products = [
        (n, title, category, round(rng.uniform(2, 60), 2), _some(rng, len(suppliers), _OWN_GOODS))
        for n, (category, title) in enumerate(titles)
    ]
    names = [f"{given} {family}" for given in _GIVEN for family in _FAMILY]
    # Cities differ in size, so that counts by city are not guessable from one another.
    weights = [rng.uniform(0.5, 2.0) for _ in CITIES]
    customers = [(n, name, rng.choices(CITIES, weights)[0]) for n, name in enumerate(names, 1)]
    _insert(connection, "suppliers", suppliers)
    _insert(connection, "products", products)
    _insert(connection, "customers", customers)
    _fill_orders(connection, rng, len(customers), len(products))


def _fill_orders(
    connection: sqlite3.Connection, rng: random.Random, customers: int, products: int
) -> None:
    first, days = date(YEARS[0], 1, 1), 365 * len(YEARS)
    orders, items, shipments = [], [], []
    for order_id in range(1800):
        day = first + timedelta(days=rng.randrange(days))
        status = rng.choices(STATUSES, (4, 6, 3, 2))[0]
        # A square makes some customers frequent and leaves others without an order for long.
        customer = 1 + int(rng.random() ** 2 * customers)
        customer = _NOBODY if rng.random() < _GUESTS else customer
        orders.append((order_id, customer, day.isoformat(), status))
        for product in rng.sample(range(products), rng.randint(1, 3)):
            items.append((order_id, product, rng.randint(1, 20)))
        if rng.random() < 0.8:
            sent = day + timedelta(days=rng.randint(1, 9))
            shipments.append((order_id, rng.choices(CARRIERS, (3, 2, 1, 4))[0], sent.isoformat()))
    _insert(connection, "orders", orders)
    _insert(connection, "items", items)
    _insert(connection, "shipments", shipments)


def _some(rng: random.Random, most: int, nobody: float) -> int:
    """A number from 1 to `most`, or that of nobody in such a share of all cases."""
    return _NOBODY if rng.random() < nobody else rng.randint(1, most)


def _insert(connection: sqlite3.Connection, table: str, rows: Sequence[tuple[object, ...]]) -> None:
    marks = ", ".join("?" * len(rows[0]))
    connection.executemany(f"insert into {table} values ({marks})", rows)
