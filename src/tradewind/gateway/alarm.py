"""The alarm of tokens that were sampled and never reached an agent, or cannot be trained.

    share = delivered / sampled, over the last tokens       >= .98 fine    < .98 warn    < .95 stop

A rollout that loses rows trains on a part of itself and nobody notices: the reward still comes.
"""

from __future__ import annotations

from collections import deque
from enum import StrEnum

from tradewind.gateway.config import GatewayConfig
from tradewind.gateway.metrics import Metrics


class Level(StrEnum):
    """How bad it is."""

    FINE = "fine"
    WARN = "warn"
    STOP = "stop"


class DeliveredAlarm:
    """Looks at the counters now and then; the share is that of the newest `delivered_window`."""

    def __init__(self, config: GatewayConfig, metrics: Metrics) -> None:
        self._config, self._metrics = config, metrics
        self._seen: deque[tuple[int, int]] = deque([(0, 0)])
        self.level = Level.FINE
        self.share: float | None = None
        """None before there are `delivered_window` tokens."""

    def check(self) -> str | None:
        """A sentence if the level has changed since the last look."""
        sampled, delivered = self._metrics.sampled_tokens, self._metrics.delivered_tokens
        self._seen.append((sampled, delivered))
        start = sampled - self._config.delivered_window
        while len(self._seen) > 1 and self._seen[1][0] <= start:
            self._seen.popleft()
        if self._seen[0][0] > start:
            return None
        self.share = (delivered - self._seen[0][1]) / (sampled - self._seen[0][0])
        level, before = self._level(self.share), self.level
        self.level = level
        return None if level is before else self.sentence()

    def sentence(self) -> str:
        """For log, events and status."""
        if self.share is None or self.level is Level.FINE:
            return "sampled tokens reach their agents"
        causes = ", ".join(f"{n} {cause}" for cause, n in self._metrics.lost_tokens.most_common(3))
        limit = self._limit(self.level)
        return (
            f"{self.level.value}: only {self.share:.3f} of the sampled tokens were delivered "
            f"(below {limit:g}); lost: {causes or 'clients that left'}"
        )

    def _level(self, share: float) -> Level:
        for level in (Level.STOP, Level.WARN):
            if share < self._limit(level):
                return level
        return Level.FINE

    def _limit(self, level: Level) -> float:
        config = self._config
        return config.delivered_stop if level is Level.STOP else config.delivered_warn
