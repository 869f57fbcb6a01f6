"""Routes of the gateway.

    /v1/chat/completions ─┐  parse   ┌─ a rollout's key ─► Traffic ─┐
    /v1/messages ─────────┤ ───────► │                              ├─► Reply ─► deliver
    /v1/responses ────────┘          └─ the users' key ─► UserChats ┘

Auxiliary routes (models, counting) answer by themselves and never become turns.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tradewind.gateway import auxiliary
from tradewind.gateway.answer import Reply
from tradewind.gateway.delivery import Delivery, StreamDelivery, refused
from tradewind.gateway.dialect import Ask, Asker, Dialect
from tradewind.gateway.dialect_chat import Chat
from tradewind.gateway.dialect_messages import Messages
from tradewind.gateway.dialect_responses import Responses
from tradewind.gateway.gateway import Gateway
from tradewind.gateway.refusal import Refusal
from tradewind.gateway.session import User
from tradewind.http.requests import TooLarge, read_bytes
from tradewind.ledger.turns import Session

CHAT, MESSAGES, RESPONSES = Chat(), Messages(), Responses()


def create_app(gateway: Gateway) -> Starlette:
    """The ASGI application."""
    speaking: dict[str, Dialect] = {
        "/v1/chat/completions": CHAT,
        "/v1/messages": MESSAGES,
        "/v1/responses": RESPONSES,
    }
    answering = [
        Route(path, _refusing(gateway, dialect, _answer), methods=["POST"])
        for path, dialect in speaking.items()
    ]
    counted: dict[str, tuple[Dialect, auxiliary.Shape]] = {
        "/v1/messages/count_tokens": (MESSAGES, auxiliary.counted_messages),
        "/v1/responses/input_tokens": (RESPONSES, auxiliary.counted_responses),
    }
    counting = [
        Route(path, _refusing(gateway, dialect, partial(_count, shape)), methods=["POST"])
        for path, (dialect, shape) in counted.items()
    ]

    async def health(_request: Request) -> Response:
        return JSONResponse({"pools": len(await gateway.router.alive())})

    async def metrics(_request: Request) -> Response:
        alarm = gateway.pulse.alarm
        said = {"level": alarm.level.value, "share": alarm.share, "detail": alarm.sentence()}
        pools = await gateway.router.table()
        return JSONResponse({**gateway.metrics.to_json(), "alarm": said, "pools": pools})

    return Starlette(
        routes=[
            *answering,
            *counting,
            Route("/v1/models", _models(gateway)),
            Route("/v1/models/{model:path}", _models(gateway)),
            Route("/healthz", health),
            Route("/v1/metrics", metrics),
        ],
        exception_handlers={404: _not_found, 405: _not_found, 500: _failed},
        lifespan=gateway.running,
    )


Endpoint = Callable[[Gateway, Dialect, Request], Awaitable[Response]]


async def _answer(gateway: Gateway, dialect: Dialect, request: Request) -> Response:
    """The one way of every call that is sampled."""
    session = await gateway.sessions.of(request.headers)
    raw = await _body(request, gateway.config.max_body_bytes)
    ask = dialect.parse(raw, request.headers, _asker(gateway, session))
    if isinstance(session, User):
        reply = gateway.users.answer(ask.call)
        return _deliver(gateway, dialect, ask, reply, forget, gateway.users.left)
    reply = await gateway.traffic.answer(session, ask.call)
    traffic = gateway.traffic
    return _deliver(
        gateway, dialect, ask, reply, traffic.delivered, lambda r: gateway.spawn(traffic.left(r))
    )


async def _count(
    shape: auxiliary.Shape, gateway: Gateway, dialect: Dialect, request: Request
) -> Response:
    """How many ids the prompt of a call would have."""
    session = await gateway.sessions.of(request.headers)
    raw = await _body(request, gateway.config.max_body_bytes)
    ask = dialect.parse(raw, request.headers, _asker(gateway, session))
    return JSONResponse(shape(auxiliary.count(gateway.renderer, ask.call)))


def _models(gateway: Gateway) -> Callable[[Request], Awaitable[Response]]:
    async def models(gateway: Gateway, dialect: Dialect, request: Request) -> Response:
        await gateway.sessions.of(request.headers)
        one = "model" in request.path_params
        return JSONResponse(auxiliary.models(gateway.config, dialect is MESSAGES, one))

    async def route(request: Request) -> Response:
        dialect: Dialect = MESSAGES if "anthropic-version" in request.headers else CHAT
        return await _refusing(gateway, dialect, models)(request)

    return route


def _asker(gateway: Gateway, session: Session | User) -> Asker:
    def count(parameter: str) -> None:
        gateway.metrics.overridden[parameter] += 1

    purpose = None if isinstance(session, User) else session.purpose
    return Asker(gateway.config, purpose, count)


def _deliver(
    gateway: Gateway,
    dialect: Dialect,
    ask: Ask,
    reply: Reply,
    on_delivered: Callable[[Reply], None],
    on_left: Callable[[Reply], None],
) -> Response:
    kind = StreamDelivery if ask.streamed else Delivery
    keep_alive_s = gateway.config.keep_alive_s
    return kind(reply, ask, dialect, keep_alive_s, on_delivered=on_delivered, on_left=on_left)


def forget(_reply: Reply) -> None:
    """Users' replies leave no record of delivery."""


def _refusing(
    gateway: Gateway, dialect: Dialect, endpoint: Endpoint
) -> Callable[[Request], Awaitable[Response]]:
    async def guarded(request: Request) -> Response:
        try:
            return await endpoint(gateway, dialect, request)
        except Refusal as refusal:
            gateway.metrics.refused[refusal.code] += 1
            return refused(refusal, dialect)
        except ClientDisconnect:
            return Response(status_code=499)

    return guarded


async def _body(request: Request, limit: int) -> bytes:
    try:
        return await read_bytes(request, limit)
    except TooLarge as error:
        said = f"The body is larger than {limit} bytes."
        raise Refusal(413, "body_too_large", said) from error


def _spoken(request: Request) -> Dialect:
    return MESSAGES if request.url.path.startswith("/v1/messages") else CHAT


async def _not_found(request: Request, _error: Exception) -> Response:
    where = f"{request.method} {request.url.path}"
    refusal = Refusal(404, "unknown_url", f"There is no {where} here.")
    return refused(refusal, _spoken(request))


async def _failed(request: Request, error: Exception) -> Response:
    said = f"The gateway failed: {type(error).__name__}."
    return refused(Refusal(500, "gateway_error", said), _spoken(request))
