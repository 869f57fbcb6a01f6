"""Where the time of the trainer's main thread goes, between two hand-overs.

    | read | wait | read | step .......... settle . | settle | probe | (the rest) |
      stall          stall                  stall     stall    stall    stall

Stall is what is neither a step's arithmetic nor waiting for groups: what a trainer pays for being
part of a run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PARTS = ("wait", "read", "step", "settle", "probe")


class Clock:
    """Seconds of each part of a turn. A part within another one is counted as itself only."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._seconds = dict.fromkeys(PARTS, 0.0)
        self._open: list[str] = []
        self._mark = self._began = now()
        self._turn = 0.0
        self._last = dict(self._seconds)

    def start(self) -> None:
        """A turn begins."""
        self._mark = self._began = self._now()
        self._seconds = dict.fromkeys(PARTS, 0.0)

    @contextmanager
    def of(self, part: str) -> Iterator[None]:
        """The time within belongs to `part`."""
        self._credit()
        self._open.append(part)
        try:
            yield
        finally:
            self._credit()
            self._open.pop()

    def turn(self) -> float:
        """A turn ends and the next one begins; its seconds."""
        now = self._now()
        self._turn, self._last = now - self._began, self._seconds
        self.start()
        return self._turn

    def metrics(self) -> dict[str, float]:
        """`trainer/<part>/seconds` of the turn that ended last, and `trainer/stall/seconds`."""
        parts = {f"trainer/{part}/seconds": s for part, s in self._last.items() if part != "step"}
        stall = self._turn - self._last["wait"] - self._last["step"]
        return {**parts, "trainer/stall/seconds": stall}

    def _credit(self) -> None:
        now = self._now()
        if self._open:
            self._seconds[self._open[-1]] += now - self._mark
        self._mark = now
