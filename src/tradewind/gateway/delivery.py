"""Bringing an answer to its client, and knowing whether it arrived.

An answer counts as delivered when all of it was written to the connection and the client had not
gone away before the last byte.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from tradewind.gateway import dialect_chat as dialect
from tradewind.gateway.answer import Answer, Listener
from tradewind.gateway.refusal import Refusal

OnAnswer = Callable[[Answer], None]

_SSE = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


def refused(refusal: Refusal) -> Response:
    """A refusal in the dialect's shape."""
    return JSONResponse(
        dialect.error(refusal), refusal.status, headers=dialect.error_headers(refusal)
    )


class Delivery(Response):
    """Waits for an answer while watching the client. ASGI application, like every response."""

    def __init__(
        self, answer: Answer, model: str, *, on_delivered: OnAnswer, on_left: OnAnswer
    ) -> None:
        self._answer, self._model = answer, model
        self._on_delivered, self._on_left = on_delivered, on_left
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the answer, or the status and error that it ended with."""
        with self._answer.listening() as listener:
            gone = asyncio.create_task(_disconnected(receive))
            gone.add_done_callback(lambda _: listener.poke())
            try:
                arrived = await self._deliver(scope, receive, send, listener, gone)
            finally:
                gone.cancel()
        (self._on_delivered if arrived else self._on_left)(self._answer)

    async def _deliver(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        listener: Listener,
        gone: asyncio.Task[None],
    ) -> bool:
        """Whether the client got everything."""
        while not self._answer.ended and not gone.done():
            await listener.wait(60.0)
        if gone.done():
            return False
        if self._answer.refusal is not None:
            await refused(self._answer.refusal)(scope, receive, send)
            return False
        body = json.dumps(dialect.completion(self._answer, self._model), ensure_ascii=False)
        await Response(body, media_type="application/json")(scope, receive, send)
        return True


class StreamDelivery(Delivery):
    """Server-sent events. The status waits for the first piece, so an early refusal has its own."""

    def __init__(
        self,
        answer: Answer,
        stream: dialect.Stream,
        *,
        keep_alive_s: float,
        on_delivered: OnAnswer,
        on_left: OnAnswer,
    ) -> None:
        super().__init__(answer, "", on_delivered=on_delivered, on_left=on_left)
        self._stream, self._keep_alive_s = stream, keep_alive_s

    async def _deliver(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        listener: Listener,
        gone: asyncio.Task[None],
    ) -> bool:
        if not self._answer.pieces and not self._answer.ended:
            await listener.wait(self._keep_alive_s)
        if gone.done():
            return False
        if self._answer.refusal is not None and not self._answer.pieces:
            await refused(self._answer.refusal)(scope, receive, send)
            return False
        self._answer.streamed = True
        await _start(send)
        await _body(send, self._stream.first())
        while not gone.done():
            ended = self._answer.ended  # before `take`: what is added later is seen next time
            text = listener.take()
            if text:
                await _body(send, self._stream.piece(text))
            if ended:
                return await self._end(send)
            if not text and await listener.wait(self._keep_alive_s):
                await _body(send, self._stream.keep_alive())
        return False

    async def _end(self, send: Send) -> bool:
        refusal = self._answer.refusal
        last = self._stream.last() if refusal is None else [self._stream.broken(refusal)]
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
