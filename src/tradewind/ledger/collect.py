"""Collection of token payloads that no row names.

They are what writes left behind that were refused or never committed: the turn of a rollout that
had ended, a process that was killed between payload and row. Payloads are listed before the rows
are read, and young ones are left alone, so nothing is taken whose row is still to come.
"""

from __future__ import annotations

import time

from sqlalchemy import select

from tradewind.ledger.database import LEDGER, Database
from tradewind.ledger.payloads import Kept, name_of
from tradewind.ledger.rows import read_meta
from tradewind.ledger.tables import turns
from tradewind.types.errors import UserError
from tradewind.types.record import Record

GRACE_S = 24 * 3600.0
"""Younger payloads are left alone, by the store's clock and ours."""


class Collected(Record):
    """Example: `Collected(place="s3://desk/run", kept=1200, young=3, unused=17, unused_bytes=9100,
    deleted=True)`.
    """

    place: str
    kept: int
    """Payloads that a row names."""
    young: int
    """Such that none names, which are not old enough."""
    unused: int
    unused_bytes: int
    deleted: bool
    """False: that was a dry run."""


class Collection(Database):
    """Called by a person, at any time of a run."""

    def collect_payloads(self, grace_s: float = GRACE_S, *, dry_run: bool = False) -> Collected:
        """Delete payloads that no row names and that nobody has written for `grace_s`.

        Raises `UserError` if another ledger keeps payloads in the same place.
        """
        others = set(self.payloads.keepers()) - {self._name()}
        if others:
            raise UserError(
                f"{len(others)} other ledgers keep their payloads here, too, and this one cannot "
                "know what they need",
                value=self.payloads.url,
                fix="give each ledger a bucket or prefix of its own",
            )
        found = self.payloads.kept()
        named = self._named()
        free = [payload for payload in found if name_of(payload) not in named]
        old = [payload for payload in free if _age(payload) > grace_s]
        if not dry_run:
            self.payloads.delete(map(name_of, old))
        return Collected(
            place=self.payloads.url,
            kept=len(found) - len(free),
            young=len(free) - len(old),
            unused=len(old),
            unused_bytes=sum(payload.size for payload in old),
            deleted=not dry_run,
        )

    def _name(self) -> str:
        with self.read() as conn:
            return str(read_meta(conn, LEDGER))

    def _named(self) -> set[str]:
        """Every payload of any row."""
        with self.read() as conn:
            rows = conn.execute(select(turns.c.request, turns.c.answer)).all()
        return {name for row in rows for name in row if name is not None}


def _age(payload: Kept) -> float:
    return time.time() - payload.modified
