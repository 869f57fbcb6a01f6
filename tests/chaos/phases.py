"""When to hurt: the moment at which a phase of the run is under way, as the ledger tells."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, func, select

from tradewind.ledger.ledger import Ledger
from tradewind.ledger.tables import (
    attestations,
    beats,
    groups,
    outcomes,
    rollouts,
    scores,
    turns,
    versions,
)

Mark = Callable[[Connection], object]
"""Something that changes, or is true, when the phase is under way."""


def _count(table, *where) -> Mark:
    return lambda conn: conn.execute(
        select(func.count()).select_from(table).where(*where)
    ).scalar_one()


def _trainer(words: str) -> Mark:
    said = select(beats.c.doing).where(beats.c.process == "trainer", beats.c.waiting_for.is_(None))
    return lambda conn: words in (conn.execute(said).scalar_one_or_none() or "")


def _behind(conn: Connection) -> bool:
    """A version is announced that not every pool has activated."""
    newest = conn.execute(select(func.max(versions.c.version))).scalar_one()
    proven = conn.execute(
        select(func.max(attestations.c.version)).group_by(attestations.c.pool)
    ).scalars()
    return min(proven.all(), default=0) < newest


CHANGES: dict[str, Mark] = {
    "lease": lambda conn: conn.execute(select(func.max(rollouts.c.leased_at))).scalar_one(),
    "outcome": _count(outcomes),
    "grade": _count(scores),
    "claim": _count(groups, groups.c.state == "closed"),
}
"""Under way when it changes."""
HOLDS: dict[str, Mark] = {
    "turn": _count(turns, turns.c.state == "intent"),
    "step": _trainer("step"),
    "publish": _trainer("publishes"),
    "swap": _behind,
}
"""Under way while it holds."""
PHASES = ("lease", "turn", "outcome", "grade", "claim", "step", "publish", "swap")


class Phase:
    """`begun` is asked again and again until it says yes."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        self._name, self._ledger = name, ledger
        self._before = self._read()

    def begun(self) -> bool:
        """Whether the phase is under way."""
        now = self._read()
        return bool(now) if self._name in HOLDS else now != self._before

    def _read(self) -> object:
        mark = {**CHANGES, **HOLDS}[self._name]
        with self._ledger.read() as conn:
            return mark(conn)
