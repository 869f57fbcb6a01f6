"""Bringing a reply to its client, and knowing whether it arrived.

A reply counts as delivered when all of it was written to the connection and the client had not
gone away before the last byte.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from tradewind.gateway.answer import Listener, Reply
from tradewind.gateway.dialect import Ask, Dialect, Stream, error_headers
from tradewind.gateway.refusal import Refusal

OnReply = Callable[[Reply], None]

_SSE = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


def refused(refusal: Refusal, dialect: Dialect) -> Response:
    """A refusal in the dialect's shape."""
    return JSONResponse(dialect.error(refusal), refusal.status, headers=error_headers(refusal))


class Delivery(Response):
    """Waits for a reply while watching the client. ASGI application, like every response."""

    def __init__(
        self,
        reply: Reply,
        ask: Ask,
        dialect: Dialect,
        keep_alive_s: float,
        *,
        on_delivered: OnReply,
        on_left: OnReply,
    ) -> None:
        self._reply, self._ask, self._dialect = reply, ask, dialect
        self._keep_alive_s = keep_alive_s
        self._on_delivered, self._on_left = on_delivered, on_left
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the reply, or the status and error that it ended with."""
        with self._reply.listening() as listener:
            gone = asyncio.create_task(_disconnected(receive))
            gone.add_done_callback(lambda _: listener.poke())
            try:
                arrived = await self._deliver(scope, receive, send, listener, gone)
            finally:
                gone.cancel()
        (self._on_delivered if arrived else self._on_left)(self._reply)

    async def _deliver(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        listener: Listener,
        gone: asyncio.Task[None],
    ) -> bool:
        """Whether the client got everything."""
        while not self._reply.ended and not gone.done():
            await listener.wait(self._keep_alive_s)
        if gone.done():
            return False
        if self._reply.refusal is not None:
            await refused(self._reply.refusal, self._dialect)(scope, receive, send)
            return False
        body = json.dumps(self._dialect.whole(self._reply, self._ask), ensure_ascii=False)
        await Response(body, media_type="application/json")(scope, receive, send)
        return True


class StreamDelivery(Delivery):
    """Server-sent events. The status waits for the first piece, so an early refusal has its own."""

    async def _deliver(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        listener: Listener,
        gone: asyncio.Task[None],
    ) -> bool:
        if not self._reply.begun and not self._reply.ended:
            await listener.wait(self._keep_alive_s)
        if gone.done():
            return False
        if self._reply.refusal is not None and not self._reply.begun:
            await refused(self._reply.refusal, self._dialect)(scope, receive, send)
            return False
        for answer in self._reply.answers:
            answer.streamed = True
        stream = self._dialect.stream(self._reply, self._ask)
        await _start(send)
        await _body(send, stream.first())
        while not gone.done():
            ended = self._reply.ended  # before `take`: what is added later is seen next time
            news = listener.take()
            if news:
                await _body(send, b"".join(stream.piece(*piece) for piece in news))
            if ended:
                return await self._end(send, stream)
            if not news and await listener.wait(self._keep_alive_s):
                await _body(send, stream.keep_alive())
        return False

    async def _end(self, send: Send, stream: Stream) -> bool:
        refusal = self._reply.refusal
        last = stream.last() if refusal is None else [stream.broken(refusal)]
        await _body(send, b"".join(last), more=False)
        return refusal is None


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _start(send: Send) -> None:
    headers = [(name.encode(), value.encode()) for name, value in _SSE.items()]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def _body(send: Send, data: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": more})
