"""What the gateway says about itself, so that a stall has a name (promise P1)."""

from __future__ import annotations

import logging
import time

from tradewind.gateway.alarm import DeliveredAlarm, Level
from tradewind.gateway.parts import Parts
from tradewind.types import Beat, Event

log = logging.getLogger(__name__)


class Pulse:
    """Writes the gateway's beat, and since when it does what it does."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.alarm = DeliveredAlarm(parts.config, parts.metrics)
        self._said: tuple[str, str | None] = ("", None)
        self._since = time.time()

    async def beat(self) -> None:
        """One beat into the ledger."""
        journal = self._parts.journal
        await self._heed_alarm()
        waiting_for = await self._parts.router.waiting_for()
        state = ("serving" if self._parts.metrics.in_flight else "idle", waiting_for)
        if state != self._said:
            self._said, self._since = state, time.time()
        beat = Beat(
            process="gateway",
            doing=self._doing(),
            waiting_for=waiting_for,
            owner="pool" if waiting_for else None,
            since=self._since,
            at=time.time(),
        )
        await journal.write(journal.ledger.beat, beat)

    def _doing(self) -> str:
        doing = f"{self._parts.metrics.in_flight} answers in flight"
        return doing if self.alarm.level is Level.FINE else f"{doing}; {self.alarm.sentence()}"

    async def _heed_alarm(self) -> None:
        """Says in log and ledger when the share of delivered tokens gets worse, or better."""
        said = self.alarm.check()
        if said is None:
            return
        severity = {
            Level.FINE: logging.INFO,
            Level.WARN: logging.WARNING,
            Level.STOP: logging.ERROR,
        }
        log.log(severity[self.alarm.level], "%s", said)
        event = Event(
            at=time.time(), process="gateway", kind="tokens.delivered", subject=None, detail=said
        )
        await self._parts.journal.write(self._parts.journal.ledger.event, event)
