"""One database, one writer at a time, and what a transaction is.

SQLite: write-ahead log, `BEGIN IMMEDIATE` for writers (so a transaction never fails half-way for
want of the lock), readers see a snapshot and block nobody. PostgreSQL: a transaction-scoped
advisory lock gives writers the same order, and each of their statements sees all that was committed
before it; readers are REPEATABLE READ. A writer that hangs is not waited for longer than
`BUSY_TIMEOUT_S`; on PostgreSQL its transaction is ended. A server that is away is waited for as
long before a transaction begins; in the middle of one it is `LedgerAway`.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self, TypeAlias

from sqlalchemy import (
    Connection,
    Engine,
    Row,
    create_engine,
    event,
    inspect,
    text,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError

from tradewind.ledger import tables
from tradewind.ledger.payloads import Payloads
from tradewind.ledger.rows import insert_new, read_meta
from tradewind.types.errors import LedgerAway, Stalled, UserError

AnyRow: TypeAlias = "Row[*tuple[Any, ...]]"
"""A result row; its columns are those of the query."""

BUSY_TIMEOUT_S = 30.0
_CONNECT_S, _AWAY_POLL_S = 5, 0.2
PAYLOADS, LEDGER = "payloads", "ledger"
"""Keys of the run table: where they lie; a name of this ledger that no other has."""
_WRITER_LOCK = 0x7472_6164  # any constant: the advisory lock of this program's writers
_LOCK = text(
    f"SELECT pg_advisory_xact_lock({_WRITER_LOCK}), set_config('synchronous_commit', :sync, true)"
)
_SIGNS_OF_ABSENCE = (
    "refused",
    "closed the connection",
    "reset by peer",
    "timeout",
    "unreachable",
    "starting up",
    "not yet accepting",
    "shutting down",
    "could not receive",
    "No such file",
)
"""What libpq and the server say when it is worth to try again."""
_SIGNS_OF_WAITING = ("database is locked", "lock timeout")


class Database:
    """An open ledger database. Safe to share between threads; open it anew after a fork."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._payloads: Payloads | None = None
        self._together = threading.local()
        self._met = False
        """Whether a connection was ever made."""
        self._writing = threading.Lock()  # threads queue here, not in SQLite's polling

    @classmethod
    def open(cls, url: str | Path, bucket: str | None = None) -> Self:
        """Open or create the ledger at a SQLAlchemy URL, or at a path (then it is SQLite).

        The first `bucket` that a ledger is opened with is where its token payloads lie, for all who
        open it later: a URL, or a folder relative to a SQLite file's. Without one they lie beside
        the SQLite file. Raises `UserError` if the ledger cannot be opened, was written by another
        schema, or keeps its payloads elsewhere.
        """
        address = _address(url)
        try:
            engine = create_engine(address, **_engine_options(address))
            with ExitStack() as refused:
                refused.callback(engine.dispose)
                if engine.dialect.name == "sqlite":
                    _speak_sqlite(engine)
                database = cls(engine)
                database._create_tables()
                if bucket is not None:
                    database._keep_payloads_in(bucket)
                refused.pop_all()
        except (ArgumentError, DBAPIError, LedgerAway) as error:
            raise UserError(
                f"the ledger cannot be opened ({_first_line(error)})",
                value=_shown(address),
                fix="give a writable folder or a reachable database",
            ) from error
        except ModuleNotFoundError as error:
            raise UserError(
                f"the ledger's driver {error.name!r} is not installed",
                value=_shown(address),
                fix="pip install 'tradewind[postgres]', or give a path for SQLite",
            ) from error
        return database

    @property
    def address(self) -> str:
        """Where it is, without a password: a SQLite file, or the URL of a database."""
        url = self._engine.url
        return url.database or "" if url.drivername == "sqlite" else url.render_as_string()

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A snapshot: all that is read in it belongs together."""
        with _told_if_away(), self._connected() as conn:
            if conn.dialect.name == "postgresql":
                conn = conn.execution_options(isolation_level="REPEATABLE READ")
            with conn.begin():
                yield conn

    @contextmanager
    def write(self, *, durable: bool = False) -> Iterator[Connection]:
        """The only writer until it ends; all or nothing.

        A killed process never loses what was committed. `durable` holds through a power cut too
        (and a database server's crash), with all that was committed before it: for the few records
        that have a counterpart outside (a published version, a group in a trainer's hands, what a
        person asked for). Of the others a crash takes the last moment, and what was done in it is
        done again. Raises `Stalled` if another writer does not end.
        """
        outer: Connection | None = getattr(self._together, "conn", None)
        if outer is not None:
            assert not durable, "what must hold through a power cut is written alone"
            with outer.begin_nested():
                yield outer
            return
        if not self._writing.acquire(timeout=BUSY_TIMEOUT_S):
            raise _stalled("a thread of this process")
        try:
            with _told_if_away(), self._connected() as conn:
                conn = conn.execution_options(tradewind_write=True)
                with _synced(conn, durable), _begun(conn, durable):
                    yield conn
        finally:
            self._writing.release()

    def _connected(self) -> Connection:
        """A living connection; a server that is away is waited for, briefly if it never was here.

        Raises `LedgerAway`, and at once what a server says that refuses us.
        """
        deadline = time.monotonic() + (BUSY_TIMEOUT_S if self._met else _CONNECT_S)
        while True:
            try:
                conn = self._engine.connect()
            except OperationalError as error:
                if not any(sign in str(error.orig) for sign in _SIGNS_OF_ABSENCE):
                    raise
                if time.monotonic() > deadline:
                    said = f"the ledger's database is away ({_first_line(error)})"
                    raise LedgerAway(said) from error
                time.sleep(_AWAY_POLL_S)
            else:
                self._met = True
                return conn

    @contextmanager
    def together(self) -> Iterator[None]:
        """One transaction for all that this thread writes until the end of the block.

        A write that raises takes back itself alone, if the block catches what it raised.
        """
        with self.write() as conn:
            self._together.conn = conn
            try:
                yield
            finally:
                del self._together.conn

    @property
    def payloads(self) -> Payloads:
        """Where the tokens of turns lie; raises `UserError` if nobody said where."""
        if self._payloads is None:
            with self.read() as conn:
                place, ledger = read_meta(conn, PAYLOADS), read_meta(conn, LEDGER)
            self._payloads = Payloads.open(self._payloads_url(place), ledger)
        return self._payloads

    def _payloads_url(self, place: str | None) -> str:
        if place is not None and "://" in place:
            return place
        if self._engine.dialect.name != "sqlite":
            raise UserError(
                "nobody said where this ledger's token payloads lie",
                value=place or _shown(str(self._engine.url)),
                fix="open it once with a bucket: Ledger.open(url, bucket='s3://name/prefix')",
            )
        file = Path(self._engine.url.database or "").absolute()
        return (file.parent / (place or f"{file.stem}.payloads")).as_uri()

    def _keep_payloads_in(self, bucket: str) -> None:
        with self.write() as conn:
            insert_new(conn, tables.run, {"key": PAYLOADS, "value": bucket})
            known = read_meta(conn, PAYLOADS)
        if known != bucket:
            raise UserError(
                f"this ledger keeps its token payloads in {known}",
                value=bucket,
                fix="name that bucket, or none",
            )

    def _create_tables(self) -> None:
        with self.read() as conn:
            schema = _schema(conn)
        if schema is None:
            with self.write() as conn:
                tables.metadata.create_all(conn)
                insert_new(conn, tables.run, {"key": "schema", "value": tables.SCHEMA})
                insert_new(conn, tables.run, {"key": LEDGER, "value": uuid.uuid4().hex})
                schema = _schema(conn)
        if schema != tables.SCHEMA:
            whose = "a newer" if schema is not None and schema > tables.SCHEMA else "an older"
            raise UserError(
                f"the ledger was written by {whose} tradewind (schema {schema}, this one reads "
                f"schema {tables.SCHEMA})",
                value=_shown(str(self._engine.url)),
                fix="use the version of tradewind that wrote it, or start a new run",
            )


@contextmanager
def _begun(conn: Connection, durable: bool) -> Iterator[None]:
    """A transaction that holds the writers' lock; it commits, or rolls back on an error."""
    try:
        transaction = conn.begin()
        if conn.dialect.name == "postgresql":
            conn.execute(_LOCK, {"sync": "on" if durable else "off"})
    except OperationalError as error:
        if not any(sign in str(error.orig) for sign in _SIGNS_OF_WAITING):
            raise
        raise _stalled("another process") from error
    with transaction:
        yield


@contextmanager
def _synced(conn: Connection, durable: bool) -> Iterator[None]:
    """Whether SQLite's commit waits for the disk; PostgreSQL is told in the transaction."""
    if not durable or conn.dialect.name != "sqlite":
        yield
        return
    _pragma(conn, "synchronous=FULL")
    try:
        yield
    finally:
        _pragma(conn, "synchronous=NORMAL")


@contextmanager
def _told_if_away() -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        if not error.connection_invalidated:
            raise
        raise LedgerAway(f"the ledger's database was lost ({_first_line(error)})") from error


def _stalled(owner: str) -> Stalled:
    return Stalled("another writer of the ledger", owner=owner, seconds=BUSY_TIMEOUT_S)


def _schema(conn: Connection) -> int | None:
    if not inspect(conn).has_table(tables.run.name):
        return None
    found: int | None = read_meta(conn, "schema")
    return found


def _address(url: str | Path) -> str:
    """A path as the URL of SQLite; PostgreSQL by psycopg 3 unless the URL names another driver.

    Absolute, for a connection that is made after a change of folder must find the same file.
    """
    scheme, found, rest = str(url).partition("://")
    if not found:
        return f"sqlite:///{Path(url).absolute()}"
    return f"postgresql+psycopg://{rest}" if scheme in ("postgresql", "postgres") else str(url)


def _shown(address: str) -> str:
    """An address without its password."""
    try:
        return make_url(address).render_as_string()
    except ArgumentError:
        return address


def _engine_options(address: str) -> dict[str, Any]:
    if address.startswith("sqlite"):
        return {"connect_args": {"timeout": BUSY_TIMEOUT_S, "check_same_thread": False}}
    if not address.startswith("postgresql"):
        return {}
    limit_ms = int(BUSY_TIMEOUT_S * 1000)
    # A transaction that hangs is ended while those who wait for it still do.
    limits = f"-c lock_timeout={limit_ms} -c idle_in_transaction_session_timeout={limit_ms // 2}"
    dead = {"keepalives_idle": 5, "keepalives_interval": 5, "keepalives_count": 3}
    dead["tcp_user_timeout"] = limit_ms // 2  # or a cut cable is noticed after hours
    return {
        "pool_pre_ping": True,
        "connect_args": {"connect_timeout": _CONNECT_S, "options": limits, **dead},
    }


def _speak_sqlite(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def _on_connect(dbapi: Any, _record: Any) -> None:
        dbapi.isolation_level = None  # BEGIN is ours, see _on_begin
        for setting in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
            dbapi.execute(f"PRAGMA {setting}")

    @event.listens_for(engine, "begin")
    def _on_begin(conn: Connection) -> None:
        writes = conn.get_execution_options().get("tradewind_write", False)
        conn.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _pragma(conn: Connection, setting: str) -> None:
    # On the driver's own connection: SQLAlchemy would begin a transaction first, in which
    # this setting cannot be changed.
    driver = conn.connection.driver_connection
    assert driver is not None
    driver.execute(f"PRAGMA {setting}")


def _first_line(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).splitlines()[0]
