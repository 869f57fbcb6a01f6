"""Which pool answers: alive, serving, of the right version, near the prefix, least loaded."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tradewind.gateway.config import GatewayConfig
from tradewind.gateway.journal import Journal
from tradewind.gateway.refusal import no_pool
from tradewind.types import Json, PoolReport, PoolState, Priority

_RECHECK_S = 0.1
_MOST_REMEMBERED = 8192


@dataclass(frozen=True)
class Route:
    """What a call needs from its pool."""

    priority: Priority
    version: int | None = None
    """The only version that may answer (evaluation); None takes any from `min_version` on."""
    min_version: int = 0
    """Older weights must not answer: their tokens would be too stale to train (promise R8)."""
    rollout_id: str | None = None
    group_id: str | None = None
    """Rollouts of a group share their prompt, turns of a rollout their history."""

    def allows(self, version: int) -> bool:
        """Whether weights of `version` may answer."""
        return version >= self.min_version if self.version is None else version == self.version


class Router:
    """Knows the pools from the ledger and what it has sent to each."""

    def __init__(self, journal: Journal, config: GatewayConfig) -> None:
        self._journal = journal
        self._config = config
        self._reports: list[PoolReport] = []
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()
        self._sent: Counter[str] = Counter()
        self._avoid_until: dict[str, float] = {}
        self._home: OrderedDict[str, str] = OrderedDict()
        self._waiting: dict[object, str] = {}

    async def choose(
        self, route: Route, *, wait_s: float, avoid: Collection[str] = ()
    ) -> PoolReport:
        """A pool that can serve `route`; raises `Refusal` (429) after `wait_s` without one.

        Pools in `avoid` are taken only if there is no other.
        """
        deadline = time.monotonic() + wait_s
        waiter = object()
        try:
            while True:
                able = [pool for pool in await self.alive() if self._able(pool, route)]
                fresh = [pool for pool in able if pool.pool not in avoid]
                if able:
                    return self._nearest(fresh or able, route)
                self._waiting[waiter] = self._missing(route)
                if time.monotonic() >= deadline:
                    raise no_pool(self._missing(route), self._config.pool_cooloff_s or 1.0)
                await asyncio.sleep(min(_RECHECK_S, max(0.0, deadline - time.monotonic())))
        finally:
            self._waiting.pop(waiter, None)

    async def waiting_for(self) -> str | None:
        """What calls wait for, or would; None while they need not."""
        if self._waiting:
            return next(iter(self._waiting.values()))
        return None if await self.alive() else "no pool has reported lately"

    @contextmanager
    def sending(self, pool: PoolReport, route: Route) -> Iterator[None]:
        """Counts a request as that pool's load, and remembers where its prefix is."""
        for home in (route.rollout_id, route.group_id):
            if home is not None:
                self._home[home] = pool.pool
                self._home.move_to_end(home)
        while len(self._home) > _MOST_REMEMBERED:
            self._home.popitem(last=False)
        self._sent[pool.pool] += 1
        try:
            yield
        finally:
            self._sent[pool.pool] -= 1

    def broke_off(self, pool: PoolReport) -> None:
        """Avoids a pool for a while."""
        self._avoid_until[pool.pool] = time.monotonic() + self._config.pool_cooloff_s

    async def alive(self) -> list[PoolReport]:
        """Pools whose last report is recent enough, by name."""
        async with self._reading:
            if time.monotonic() - self._read_at >= self._config.pool_poll_s:
                since = time.time() - self._config.pool_alive_s
                self._reports = await self._journal.read(self._journal.ledger.pools, since)
                self._read_at = time.monotonic()
        return self._reports

    async def table(self) -> list[Json]:
        """For people: each living pool, what it serves and what it was sent."""
        return [
            {
                "pool": pool.pool,
                "state": pool.state.value,
                "version": pool.version,
                "in_flight": self._sent[pool.pool],
                "running": pool.running,
                "waiting": pool.waiting,
                "tokens_per_s": pool.tokens_per_s,
                "avoided": self._avoided(pool),
            }
            for pool in await self.alive()
        ]

    def _able(self, pool: PoolReport, route: Route) -> bool:
        # A refusing pool serves the version it has; only a starting one has none.
        serves = pool.state is not PoolState.STARTING and not self._avoided(pool)
        return serves and route.allows(pool.version)

    def _avoided(self, pool: PoolReport) -> bool:
        return time.monotonic() < self._avoid_until.get(pool.pool, 0.0)

    def _load(self, pool: PoolReport) -> float:
        """Requests per slot. Reports are up to seconds old; what we sent is known at once."""
        return max(self._sent[pool.pool], pool.running + pool.waiting) / max(1, pool.max_batch)

    def _nearest(self, pools: list[PoolReport], route: Route) -> PoolReport:
        least = min(pools, key=lambda pool: (self._load(pool), pool.pool))
        for home in (route.rollout_id, route.group_id):
            for pool in pools:
                near = home is not None and self._home.get(home) == pool.pool
                if near and self._load(pool) <= self._load(least) + self._config.sticky_slack:
                    return pool
        return least

    def _missing(self, route: Route) -> str:
        if not self._reports:
            return "no pool has reported lately"
        served = sorted({pool.version for pool in self._reports})
        if route.version is not None and route.version not in served:
            return f"version {route.version} is asked for and the pools serve {served}"
        if all(version < route.min_version for version in served):
            return f"version {route.min_version} or newer is needed and the pools serve {served}"
        states = ", ".join(f"{pool.pool} is {pool.state.value}" for pool in self._reports)
        return f"{states}, or broke off a moment ago"
