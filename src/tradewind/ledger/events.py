"""Beats and events: who does what, who waits for whom, what happened (promise P1)."""

from __future__ import annotations

import time

from sqlalchemy import Connection, RowMapping, insert, select

from tradewind.ledger.database import Database
from tradewind.ledger.rows import put
from tradewind.ledger.tables import beats, events
from tradewind.types.beat import Beat, Event


class Observations(Database):
    """Called by every process."""

    def beat(self, beat: Beat) -> None:
        """Replace the process's last beat."""
        values = beat.model_dump()
        with self.write() as conn:
            put(conn, beats, {"process": values.pop("process")}, values)

    def beats(self) -> list[Beat]:
        """The last beat of every process, by name."""
        with self.read() as conn:
            rows = conn.execute(select(beats).order_by(beats.c.process)).mappings()
            return [Beat(**row) for row in rows]

    def event(self, event: Event) -> None:
        """Append an event."""
        with self.write() as conn:
            conn.execute(insert(events).values(event.model_dump()))

    def events(self, since: float = 0.0, limit: int = 1000) -> list[Event]:
        """The latest `limit` events not before `since` (Unix seconds), oldest first."""
        latest = (
            select(events).where(events.c.at >= since).order_by(events.c.event.desc()).limit(limit)
        )
        with self.read() as conn:
            rows = conn.execute(latest).mappings().all()
        return [event_of(row) for row in reversed(rows)]


def event_of(row: RowMapping) -> Event:
    """The event of a row of `events`."""
    return Event(**{name: value for name, value in row.items() if name != "event"})


def note(conn: Connection, kind: str, subject: str | None, detail: str) -> None:
    """Append an event in the transaction that causes it."""
    conn.execute(
        insert(events).values(
            at=time.time(), process="ledger", kind=kind, subject=subject, detail=detail
        )
    )
