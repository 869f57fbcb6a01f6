"""What a push server must not forget: used nonces, and what became of its rollouts.

One SQLite file, or memory: a server that starts again on its file refuses a replay, plays nothing
twice, and says of what it was playing that it was lost. A rollout's body is kept as its digest
only: it holds the model key.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tradewind.types.assignment import RolloutState
from tradewind.types.errors import UserError
from tradewind.types.ids import RolloutId
from tradewind.types.outcome import Outcome, OutcomeStatus

_TABLES = """
CREATE TABLE IF NOT EXISTS nonces (nonce TEXT PRIMARY KEY, until REAL NOT NULL);
CREATE INDEX IF NOT EXISTS nonces_by_end ON nonces (until);
CREATE TABLE IF NOT EXISTS rollouts (
    number INTEGER PRIMARY KEY AUTOINCREMENT, rollout_id TEXT UNIQUE NOT NULL,
    digest TEXT NOT NULL, state TEXT NOT NULL, outcome TEXT
);
"""
LOST = "the customer's server was restarted while it ran"


class Shelved(NamedTuple):
    """One rollout."""

    rollout_id: RolloutId
    digest: str
    """SHA-256 of the body with which it was asked for."""
    state: RolloutState
    outcome: Outcome | None


class Shelf:
    """`Shelf(Path("push.sqlite"))`; without a file it forgets with the process."""

    def __init__(self, file: Path | None = None) -> None:
        """Raises `UserError` if the file cannot be opened."""
        try:
            self._db = sqlite3.connect(
                ":memory:" if file is None else file, isolation_level=None, check_same_thread=False
            )
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(_TABLES)
        except sqlite3.Error as error:
            raise UserError(
                f"the state of the push server cannot be opened ({error})",
                value=str(file),
                fix="give --state a file that this user may write, and no other server uses",
            ) from error

    def new_nonce(self, nonce: str, until: float, now: float) -> bool:
        """Remember a nonce until then; False if it is remembered already. Unix seconds."""
        self._db.execute("DELETE FROM nonces WHERE until < ?", (now,))
        added = self._db.execute("INSERT OR IGNORE INTO nonces VALUES (?, ?)", (nonce, until))
        return added.rowcount == 1

    def put(self, rollout: Shelved) -> None:
        """Remember how far a rollout is."""
        told = None if rollout.outcome is None else rollout.outcome.model_dump_json()
        self._db.execute(
            "INSERT INTO rollouts (rollout_id, digest, state, outcome) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (rollout_id) DO UPDATE SET state = excluded.state,"
            " outcome = excluded.outcome",
            (rollout.rollout_id, rollout.digest, rollout.state.value, told),
        )

    def forget(self, rollout: RolloutId) -> None:
        """It is not asked for any more."""
        self._db.execute("DELETE FROM rollouts WHERE rollout_id = ?", (rollout,))

    def left(self) -> Iterator[Shelved]:
        """What an earlier life knew, oldest first; what it was playing has failed with `LOST`."""
        rows = self._db.execute(
            "SELECT rollout_id, digest, state, outcome FROM rollouts ORDER BY number"
        ).fetchall()
        for name, digest, said, told in rows:
            state = RolloutState(said)
            outcome = None if told is None else Outcome.model_validate_json(told)
            if not state.over:
                state = RolloutState.FAILED
                outcome = Outcome(status=OutcomeStatus.INFRA_ERROR, detail=LOST)
            found = Shelved(name, digest, state, outcome)
            self.put(found)
            yield found

    def close(self) -> None:
        """Nothing is remembered from now on."""
        self._db.close()
