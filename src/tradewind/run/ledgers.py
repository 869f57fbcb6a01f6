"""The ledgers of a run, by what a person calls it."""

from __future__ import annotations

from pathlib import Path

from tradewind.ledger.ledger import Ledger
from tradewind.ledger.place import without_password
from tradewind.run.workspace import Workspace
from tradewind.types import UserError


def ledgers_of(run: str) -> list[str]:
    """The ledgers of a run's folder, its control arm's included, or the one that is named."""
    if "://" in run:
        return [without_password(run)]
    if Path(run).is_file():
        return [str(Path(run).absolute())]
    workspace = Workspace(Path(run).absolute())
    found = [w.ledger for w in (workspace, workspace.control) if w.has_ledger]
    if not found:
        raise UserError(
            "there is no ledger here",
            value=run,
            fix="give runs/<name>, a ledger's file or the URL of a database",
        )
    return found


def open_ledger(run: str) -> Ledger:
    """The first of `ledgers_of`: that of the main arm."""
    return Ledger.open(ledgers_of(run)[0])
