"""Routes of the gateway, and the parts behind them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tradewind.gateway import dialect_chat as dialect
from tradewind.gateway.answer import Answer
from tradewind.gateway.beat import Pulse
from tradewind.gateway.config import GatewayConfig
from tradewind.gateway.delivery import Delivery, StreamDelivery, refused
from tradewind.gateway.generation import Generator
from tradewind.gateway.journal import Journal
from tradewind.gateway.metrics import Metrics
from tradewind.gateway.pool_client import PoolClient
from tradewind.gateway.refusal import Refusal
from tradewind.gateway.router import Router
from tradewind.gateway.session import Sessions, User
from tradewind.gateway.traffic import Traffic
from tradewind.gateway.turn import Parts
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
        self.config = config
        self.journal = Journal(ledger)
        self.metrics = Metrics()
        self.router = Router(self.journal, config)
        self.pools = PoolClient(pool_key, config)
        self.sessions = Sessions(self.journal, user_key, config.session_cache_s)
        generator = Generator(renderer, self.router, self.pools, config, self.metrics)
        parts = Parts(config, renderer, self.journal, self.router, generator, self.metrics)
        self.traffic = Traffic(parts, self.sessions)
        self.users = UserChats(parts)
        self._pulse = Pulse(parts)
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
                await self._pulse.beat()
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
        await asyncio.to_thread(self.journal.close)


def create_app(gateway: Gateway) -> Starlette:
    """The ASGI application."""

    async def chat(request: Request) -> Response:
        session = await gateway.sessions.of(request.headers.get("authorization"))
        raw = await _body(request, gateway.config.max_body_bytes)
        purpose = None if isinstance(session, User) else session.purpose
        call, body = dialect.parse(raw, request.headers, purpose, gateway.config, count)
        if isinstance(session, User):
            return deliver(gateway.users.answer(call), body, forget, gateway.users.left)
        answer = await gateway.traffic.answer(session, call)
        return deliver(
            answer,
            body,
            gateway.traffic.delivered,
            lambda a: gateway.spawn(gateway.traffic.left(a)),
        )

    def deliver(
        answer: Answer,
        body: dict[str, Any],
        on_delivered: Callable[[Answer], None],
        on_left: Callable[[Answer], None],
    ) -> Response:
        model = gateway.config.model
        if not dialect.streamed(body):
            return Delivery(answer, model, on_delivered=on_delivered, on_left=on_left)
        return StreamDelivery(
            answer,
            dialect.Stream(answer, model, body),
            keep_alive_s=gateway.config.keep_alive_s,
            on_delivered=on_delivered,
            on_left=on_left,
        )

    def count(parameter: str) -> None:
        gateway.metrics.overridden[parameter] += 1

    async def models(request: Request) -> Response:
        await gateway.sessions.of(request.headers.get("authorization"))
        return JSONResponse(dialect.models(gateway.config))

    async def health(_request: Request) -> Response:
        return JSONResponse({"pools": len(await gateway.router.alive())})

    async def metrics(_request: Request) -> Response:
        return JSONResponse({**gateway.metrics.to_json(), "pools": await gateway.router.table()})

    return Starlette(
        routes=[
            Route("/v1/chat/completions", _refusing(gateway, chat), methods=["POST"]),
            Route("/v1/models", _refusing(gateway, models)),
            Route("/healthz", health),
            Route("/v1/metrics", metrics),
        ],
        exception_handlers={404: _not_found, 405: _not_found, 500: _failed},
        lifespan=gateway.running,
    )


def forget(_answer: Answer) -> None:
    """Users' answers leave no record of delivery."""


def _refusing(
    gateway: Gateway, endpoint: Callable[[Request], Awaitable[Response]]
) -> Callable[[Request], Awaitable[Response]]:
    async def guarded(request: Request) -> Response:
        try:
            return await endpoint(request)
        except Refusal as refusal:
            gateway.metrics.refused[refusal.code] += 1
            return refused(refusal)
        except ClientDisconnect:
            return Response(status_code=499)

    return guarded


async def _body(request: Request, limit: int) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise Refusal(413, "body_too_large", f"The body is larger than {limit} bytes.")
        parts.append(part)
    return b"".join(parts)


async def _not_found(request: Request, _error: Exception) -> Response:
    where = f"{request.method} {request.url.path}"
    return refused(Refusal(404, "unknown_url", f"There is no {where} here."))


async def _failed(_request: Request, error: Exception) -> Response:
    return refused(Refusal(500, "gateway_error", f"The gateway failed: {type(error).__name__}."))
