"""Notices when nothing moves, and whether anybody says why (promise P1)."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tradewind.ledger.ledger import Ledger

CAUSES = ("run.stalled", "process.silent", "group.rejected", "lease.lost")


@dataclass
class Stall:
    """Nothing moved from `began` to `ended` (Unix seconds)."""

    began: float
    ended: float
    causes: tuple[str, ...]
    """Events that name one, and beats of those who wait and say for whom."""
    unwatched_s: float
    """The longest time in it in which nobody looked: the storm was at work, or stopped itself, as
    on a machine that is suspended."""

    @property
    def seconds(self) -> float:
        """How long it was."""
        return self.ended - self.began


class StallWatch:
    """Call `look` often; `stalls` are those longer than `limit_s`."""

    def __init__(self, ledger: Ledger, limit_s: float, look_s: float = 0.2) -> None:
        self._ledger, self._limit_s, self._look_s = ledger, limit_s, look_s
        self._progress: object = None
        self._moved = self._looked = time.time()
        self._unwatched_s = 0.0
        self.stalls: list[Stall] = []
        self.longest = Stall(self._moved, self._moved, (), 0.0)
        """Whether above the limit or not."""

    def look(self) -> None:
        """Compare with the last look."""
        now = time.time()
        if now - self._looked < self._look_s:
            return
        self._unwatched_s = max(self._unwatched_s, now - self._looked)
        self._looked = now
        counts = self._ledger.counts()
        progress = (counts.steps, counts.turns, counts.rollouts, counts.training_groups)
        if progress == self._progress:
            return
        self._end(now)
        self._progress, self._moved, self._unwatched_s = progress, now, 0.0

    def close(self) -> None:
        """The last stall may still be under way."""
        self._end(time.time())

    @property
    def unexplained(self) -> list[Stall]:
        """Long, and nobody said why."""
        return [stall for stall in self.stalls if not stall.causes]

    def _end(self, now: float) -> None:
        if now - self._moved <= min(self._limit_s, self.longest.seconds):
            return
        events = [e for e in self._ledger.events(self._moved) if e.kind in CAUSES[:2]]
        waits = [b for b in self._ledger.beats() if b.waiting_for and b.owner]
        causes = [f"{e.kind}: {e.detail}" for e in events if e.at <= now]
        causes += [f"{b.process} waits for {b.waiting_for} ({b.owner})" for b in waits]
        stall = Stall(self._moved, now, tuple(causes), self._unwatched_s)
        self.longest = max(self.longest, stall, key=lambda each: each.seconds)
        if stall.seconds > self._limit_s:
            self.stalls.append(stall)
