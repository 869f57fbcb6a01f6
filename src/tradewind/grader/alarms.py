"""What somebody has to be told: a spent budget, a key that is refused, a judge that is away.

A signal says so in the evidence of its nulls, under `alarm`; it becomes an event of the ledger, and
goes on being one as long as it lasts, but not with every rollout.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from tradewind.ledger.ledger import Ledger
from tradewind.types.beat import Event
from tradewind.types.score import Score

AGAIN_S = 300.0
"""Between two events of one signal and kind."""
KIND = "signal.alarmed"
PUT_OFF = "signal.put_off"


class Alarms:
    """Thread-safe."""

    def __init__(self, ledger: Ledger, clock: Callable[[], float] = time.time) -> None:
        self._ledger, self._clock = ledger, clock
        self._guard = threading.Lock()
        self._raised: dict[tuple[str, str], float] = {}

    def raise_for(self, scores: Sequence[Score]) -> None:
        """Write an event for each alarm that has not been one lately."""
        for score in scores:
            said = score.evidence.get("alarm")
            if isinstance(said, str):
                self._tell(KIND, score.source, said)

    def put_off(self, nulls: Sequence[Score]) -> None:
        """Say whose verdicts are waited for."""
        for score in nulls:
            self._tell(PUT_OFF, score.source, f"{score.cause}; it is asked again later")

    def _tell(self, kind: str, source: str, said: str) -> None:
        if self._due(source, f"{kind} {said.partition(':')[0]}"):
            event = Event(
                at=self._clock(), process="grader", kind=kind, subject=source, detail=said
            )
            self._ledger.event(event)

    def _due(self, source: str, kind: str) -> bool:
        with self._guard:
            now, last = self._clock(), self._raised.get((source, kind))
            if last is not None and now - last < AGAIN_S:
                return False
            self._raised[(source, kind)] = now
            return True
