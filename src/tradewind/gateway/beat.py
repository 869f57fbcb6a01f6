"""What the gateway says about itself, so that a stall has a name (promise P1)."""

from __future__ import annotations

import time

from tradewind.gateway.turn import Parts
from tradewind.types import Beat


class Pulse:
    """Writes the gateway's beat, and since when it does what it does."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._said: tuple[str, str | None] = ("", None)
        self._since = time.time()

    async def beat(self) -> None:
        """One beat into the ledger."""
        journal = self._parts.journal
        waiting_for = await self._parts.router.waiting_for()
        state = ("serving" if self._parts.metrics.in_flight else "idle", waiting_for)
        if state != self._said:
            self._said, self._since = state, time.time()
        beat = Beat(
            process="gateway",
            doing=f"{self._parts.metrics.in_flight} answers in flight",
            waiting_for=waiting_for,
            owner="pool" if waiting_for else None,
            since=self._since,
            at=time.time(),
        )
        await journal.write(journal.ledger.beat, beat)
