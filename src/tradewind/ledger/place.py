"""Where a run's ledger is: a SQLite file in its folder, or the database that the folder names.

The password of a database is in none of these places: libpq takes it from PGPASSWORD or from the
file that PGPASSFILE names (or `~/.pgpass`).
"""

from __future__ import annotations

import uuid
from pathlib import Path

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from tradewind.types.errors import UserError

FILE, POINTER = "ledger.sqlite", "ledger.url"
PASSWORD_VARIABLES = ("PGPASSWORD", "PGPASSFILE")
"""Of libpq; only processes that write to the ledger are given them."""


def ledger_of(folder: Path) -> str:
    """Path or URL of the ledger of a run's folder, whether or not it exists yet."""
    pointer = folder / POINTER
    if not pointer.exists():
        return str(folder / FILE)
    return pointer.read_text(encoding="utf-8").split()[0]


def has_ledger(folder: Path) -> bool:
    """Whether a ledger was made for a run's folder."""
    return (folder / POINTER).exists() or (folder / FILE).exists()


def point_to(folder: Path, url: str) -> str:
    """From here on the folder's ledger is the database at `url`; a mark that tells this folder from
    every other that may name the same database, the same on a second call.
    """
    pointer = folder / POINTER
    if not pointer.exists():
        pointer.write_text(f"{without_password(url)}\n{uuid.uuid4()}\n", encoding="utf-8")
    return pointer.read_text(encoding="utf-8").split()[1]


def without_password(url: str) -> str:
    """The same path or URL; raises `UserError` if it says a password.

    Command lines and recipes are read by others: `ps`, logs, the run's folder.
    """
    try:
        secret = make_url(url).password if "://" in url else None
    except ArgumentError:
        secret = None
    if secret is None:
        return url
    raise UserError(
        "the password of a database is not to be written here, where others may read it",
        value=make_url(url).render_as_string(),
        fix="leave it out and set PGPASSWORD, or PGPASSFILE (or ~/.pgpass)",
    )
