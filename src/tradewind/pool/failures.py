"""Failures: which versions a pool has refused, when it tries again, and when it doubts itself."""

from __future__ import annotations

import time

from tradewind.pool.config import PoolConfig

VERSIONS, TRIES = 2, 4
"""So many different versions in a row without proof, or so many tries of one, and the fault is
looked for in the pool: mirror and engine are rebuilt."""


class Failures:
    """Since the last version that was activated. Used by the receiver's thread."""

    def __init__(self, config: PoolConfig) -> None:
        self._config = config
        self._refused: int | None = None
        self._retry_at = 0.0
        self._retry_s = config.retry_s
        self._unproven: list[int] = []
        self.rebuilt = False
        """Whether a rebuild has been tried since the last success."""

    def due(self, version: int) -> bool:
        """Whether `version` may be tried now."""
        return version != self._refused or time.monotonic() >= self._retry_at

    def refused(self, version: int) -> bool:
        """`version` waits, twice as long each time; True if it is another than the one before."""
        news = version != self._refused
        if news:
            self._retry_s = self._config.retry_s
        self._refused = version
        self._retry_at = time.monotonic() + self._retry_s
        self._retry_s = min(2 * self._retry_s, self._config.retry_max_s)
        return news

    def failed(self, version: int) -> None:
        """`version` failed its proof."""
        self._unproven.append(version)

    @property
    def ours(self) -> bool:
        """Whether the failed proofs point at the pool and not at a version."""
        return len(set(self._unproven)) >= VERSIONS or len(self._unproven) >= TRIES

    def healed(self) -> None:
        """Mirror and engine are new; counting begins again."""
        self._unproven.clear()
        self.rebuilt = True

    def clear(self) -> None:
        """A version was activated."""
        self._refused, self._retry_s = None, self._config.retry_s
        self._unproven.clear()
        self.rebuilt = False
