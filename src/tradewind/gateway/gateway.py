"""The gateway's state and what goes on beside its requests; the routes are in `app`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

from starlette.applications import Starlette

from tradewind.gateway.config import GatewayConfig
from tradewind.gateway.generation import Generator
from tradewind.gateway.journal import Journal
from tradewind.gateway.metrics import Metrics
from tradewind.gateway.parts import Parts
from tradewind.gateway.pool_client import PoolClient
from tradewind.gateway.pulse import Pulse
from tradewind.gateway.router import Router
from tradewind.gateway.session import Sessions
from tradewind.gateway.traffic import Traffic
from tradewind.gateway.user_chat import UserChats
from tradewind.ledger.ledger import Ledger
from tradewind.render.renderer import Renderer

log = logging.getLogger(__name__)

_WATCH_S = 1.0


class Gateway:
    """The parts of one process, wired."""

    def __init__(
        self,
        config: GatewayConfig,
        ledger: Ledger,
        renderer: Renderer,
        *,
        pool_key: str,
        user_key: str | None,
    ) -> None:
        self.config, self.renderer = config, renderer
        self.journal = Journal(ledger)
        self.metrics = Metrics()
        self.router = Router(self.journal, config)
        self.pools = PoolClient(pool_key, config)
        self.sessions = Sessions(self.journal, user_key, config.session_cache_s)
        generator = Generator(renderer, self.router, self.pools, config, self.metrics)
        parts = Parts(config, renderer, self.journal, self.router, generator, self.metrics)
        self.traffic = Traffic(parts, self.sessions)
        self.users = UserChats(parts)
        self.pulse = Pulse(parts)
        self._tasks: set[asyncio.Task[Any]] = set()

    @contextlib.asynccontextmanager
    async def running(self, _app: Starlette | None = None) -> AsyncIterator[None]:
        """From the first request to the last record."""
        left = await self.traffic.lose_leftovers()
        log.info("gave up %d turns that an earlier gateway left open", left)
        self.spawn(self._watch())
        try:
            yield
        finally:
            await self._close()

    def spawn(self, work: Any) -> None:
        """Runs a coroutine beside the requests, until the gateway closes."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch(self) -> None:
        while True:
            try:
                await self.pulse.beat()
                await self.traffic.end_sealed()
            except Exception:  # boundary: a busy ledger must not end the watch
                log.exception("the watch missed a beat")
            await asyncio.sleep(_WATCH_S)

    async def _close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await self.traffic.close()
        await self.users.close()
        await self.pools.close()
        await self.journal.close()
