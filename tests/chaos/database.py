"""The ledger's database as a victim: a file that another program locks, a server that dies."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from common.postgres import Server

LEDGER = "ledger"
"""Its name among the victims."""


@dataclass
class File:
    """SQLite. Another program begins to write and does not end."""

    path: Path
    fault = "lock"
    _other: sqlite3.Connection | None = None

    @property
    def url(self) -> str:
        """For all processes; there is no port to cut."""
        return str(self.path)

    def hurt(self) -> None:
        """Takes its turn among the writers, and keeps it."""
        self._other = sqlite3.connect(self.path, timeout=30.0, isolation_level=None)
        self._other.execute("BEGIN IMMEDIATE")

    def heal(self) -> None:
        """The other program has nothing to say."""
        if self._other is not None:
            self._other.close()
            self._other = None


@dataclass
class Served:
    """PostgreSQL on a port of loopback. All its processes end at once, and it starts again.

    Commits of its last moment are lost, but for those that had to hold through a power cut and all
    before them.
    """

    server: Server
    url: str
    fault = "crash"

    def hurt(self) -> None:
        """Returns when it answers again: the storm itself asks the ledger where things stand."""
        self.server.crash()
        self.server.start()

    def heal(self) -> None:
        """It has started again."""
