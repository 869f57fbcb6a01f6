"""What judges said and what they cost, in one SQLite file that survives restarts.

    readings   key (judge, prompt, criterion, evidence), number of the reading -> reply
    spent      run -> calls, tokens, money; reserved before a call, settled after it

Several graders may share the file. A reading is immutable; failures are never stored.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tradewind.rewards.judges.failure import FailureKind, JudgeFailed
from tradewind.rewards.judges.options import EndpointOptions
from tradewind.types.errors import UserError
from tradewind.types.record import Record

WAIT_S = 30.0
_SCHEMA = """
create table if not exists readings (
    key text, number integer, family text, value real, reply text, primary key (key, number));
create index if not exists by_family on readings (family, key);
create table if not exists spent (
    run text primary key, calls integer, tokens integer, usd real);
"""


class Spent(Record):
    """Of one run."""

    calls: int = 0
    tokens: int = 0
    usd: float = 0.0


class Store:
    """Thread-safe; one connection, one transaction at a time."""

    def __init__(self, path: Path | None) -> None:
        """Opens or creates it; None keeps all in memory. Raises `UserError`."""
        self._lock = threading.RLock()
        try:
            self._connection = sqlite3.connect(
                str(path) if path else ":memory:",
                timeout=WAIT_S,
                isolation_level=None,
                check_same_thread=False,
            )
            self._connection.execute("pragma journal_mode = wal")
            self._connection.execute("pragma synchronous = normal")
            self._connection.executescript(_SCHEMA)
        except sqlite3.Error as error:
            raise UserError(
                f"the judge's store cannot be opened ({error})",
                value=str(path),
                fix="give store a SQLite file in a writable folder",
            ) from error

    def reading(self, key: str, number: int) -> str | None:
        """A stored reply, as JSON."""
        with self._lock:
            row = self._connection.execute(
                "select reply from readings where key = ? and number = ?", (key, number)
            ).fetchone()
        return None if row is None else str(row[0])

    def keep(self, key: str, number: int, family: str, value: float, reply: str) -> None:
        """Store a reply; the first one of a number stands."""
        with self._write():
            self._connection.execute(
                "insert or ignore into readings values (?, ?, ?, ?, ?)",
                (key, number, family, value, reply),
            )

    def repeated(self, family: str) -> list[tuple[int, float, float]]:
        """(readings, sum, sum of squares) of each item of a family that was read twice or more."""
        with self._lock:
            return self._connection.execute(
                "select count(*), sum(value), sum(value * value) from readings"
                " where family = ? group by key having count(*) > 1",
                (family,),
            ).fetchall()

    def spent(self, run: str) -> Spent:
        """What a run has spent, reservations included."""
        with self._lock:
            row = self._connection.execute(
                "select calls, tokens, usd from spent where run = ?", (run,)
            ).fetchone()
        return Spent() if row is None else Spent(calls=row[0], tokens=row[1], usd=row[2])

    def spend(self, run: str, more: Spent, most: tuple[float, float, float]) -> bool:
        """Add to what a run has spent, unless one of its limits would be passed."""
        with self._write():
            now = self.spent(run)
            after = Spent(
                calls=now.calls + more.calls,
                tokens=now.tokens + more.tokens,
                usd=now.usd + more.usd,
            )
            if after.calls > most[0] or after.tokens > most[1] or after.usd > most[2]:
                return False
            self._connection.execute(
                "insert or replace into spent values (?, ?, ?, ?)",
                (run, after.calls, after.tokens, after.usd),
            )
            return True

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def _write(self) -> Iterator[None]:
        with self._lock:
            self._connection.execute("begin immediate")
            end = "rollback"
            try:
                yield
                end = "commit"
            finally:
                self._connection.execute(end)


class Budget:
    """What a run may spend on judges."""

    REPEATS_SHARE = 0.8
    """Repeats leave the rest of a budget to first readings."""

    def __init__(self, options: EndpointOptions, store: Store) -> None:
        self._options, self._store = options, store
        limits = (options.max_calls, options.max_total_tokens, options.max_usd)
        self._most = tuple(float("inf") if limit is None else limit for limit in limits)

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        """US dollars."""
        options = self._options
        return (
            prompt_tokens * options.usd_per_mtok_in + completion_tokens * options.usd_per_mtok_out
        ) / 1e6

    def reserve(self, prompt_tokens: int, completion_tokens: int) -> Bill:
        """Room for one call of this size; raises `JudgeFailed` if there is none."""
        wanted = Spent(
            calls=1,
            tokens=prompt_tokens + completion_tokens,
            usd=self.price(prompt_tokens, completion_tokens),
        )
        a, b, c = self._most
        if not self._store.spend(self._options.run, wanted, (a, b, c)):
            raise JudgeFailed(FailureKind.BUDGET, self.sentence())
        return Bill(self, wanted)

    def settle(self, reserved: Spent, prompt_tokens: int, completion_tokens: int) -> None:
        """Put what a call did cost in the place of what was reserved."""
        rest = Spent(
            tokens=prompt_tokens + completion_tokens - reserved.tokens,
            usd=self.price(prompt_tokens, completion_tokens) - reserved.usd,
        )
        no_limit = (float("inf"),) * 3
        self._store.spend(self._options.run, rest, no_limit)

    def allows_repeats(self) -> bool:
        """Whether enough is left for readings that are only a second look."""
        spent = self._store.spent(self._options.run)
        used = (spent.calls, spent.tokens, spent.usd)
        return all(
            now < self.REPEATS_SHARE * most for now, most in zip(used, self._most, strict=True)
        )

    def sentence(self) -> str:
        """How much of what is spent."""
        spent = self._store.spent(self._options.run)
        names = ("calls", "tokens", "USD")
        used = (spent.calls, spent.tokens, round(spent.usd, 4))
        parts = [
            f"{now:g} of {most:g} {name}"
            for name, now, most in zip(names, used, self._most, strict=True)
            if most != float("inf")
        ]
        return f"the budget leaves no room for a call ({', '.join(parts)})"


class Bill:
    """A reservation that is settled once."""

    def __init__(self, budget: Budget, reserved: Spent) -> None:
        self._budget, self._reserved = budget, reserved

    def settle(self, prompt_tokens: int, completion_tokens: int) -> None:
        """What the call really cost."""
        self._budget.settle(self._reserved, prompt_tokens, completion_tokens)
