"""The pool's HTTP routes: tokens in, tokens out.

    POST /v1/generate        GenerateRequest -> GenerateChunk lines (NDJSON)    Bearer pool key
    POST /v1/cancel/{id}     204; the stream ends with a `cancelled` chunk      Bearer pool key
    POST /v1/weights/go-to   GoTo -> PoolReport; the pool goes there at once    Bearer pool key
    GET  /v1/health          PoolReport                                         open

Tokens leave by the gate: those of a version that is not proven yet wait in it. A client that goes
away cancels its request in the engine.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tradewind.http.requests import TooLarge, bears, read_body
from tradewind.pool.gate import Gate
from tradewind.pool.status import PoolStatus
from tradewind.types import FinishReason, GenerateChunk, GenerateRequest, GoTo, PoolState

MAX_BODY = 16 * 2**20
"""Bytes of a request: two million prompt ids."""
UNKNOWN_KEY = "this pool does not know the key. Fix: send its pool key"


class PoolServer:
    """The routes, over one engine behind its gate."""

    def __init__(self, engine: Gate, status: PoolStatus, key: str) -> None:
        self._engine, self._status, self._key = engine, status, key
        self.stopping = False
        """Set when the process ends: what is cut off then is the pool's fault, not a wish."""

    def app(self) -> Starlette:
        """The ASGI application."""
        return Starlette(
            routes=[
                Route("/v1/generate", self.generate, methods=["POST"]),
                Route("/v1/cancel/{request_id}", self.cancel, methods=["POST"]),
                Route("/v1/weights/go-to", self.go_to, methods=["POST"]),
                Route("/v1/health", self.health, methods=["GET"]),
            ]
        )

    async def generate(self, request: Request) -> Response:
        """Streams the chunks of one request."""
        if not bears(request.headers, self._key):
            return _error(401, UNKNOWN_KEY)
        if self.stopping or self._status.state is PoolState.STARTING:
            return _error(503, "this pool does not serve yet, or any more")
        try:
            wanted = await read_body(request, GenerateRequest, MAX_BODY)
        except ValidationError as error:
            first = error.errors()[0]
            return _error(422, f"not a generate request: {first['loc']}: {first['msg']}")
        except TooLarge as error:
            return _error(413, str(error))
        except ClientDisconnect:
            return Response(status_code=400)
        return StreamingResponse(self._stream(wanted), media_type="application/x-ndjson")

    async def cancel(self, request: Request) -> Response:
        """Ends a request; one that is not there has ended already."""
        if not bears(request.headers, self._key):
            return _error(401, UNKNOWN_KEY)
        self._engine.cancel(request.path_params["request_id"])
        return Response(status_code=204)

    async def go_to(self, request: Request) -> Response:
        """Pins the pool to a version, or lets it follow again; the report says when it is there."""
        if not bears(request.headers, self._key):
            return _error(401, UNKNOWN_KEY)
        try:
            wanted = await read_body(request, GoTo, MAX_BODY)
        except (ValidationError, TooLarge):
            return _error(422, 'not a version. Fix: send {"version": 7}, or null for the newest')
        except ClientDisconnect:
            return Response(status_code=400)
        self._status.pins(wanted.version)
        return self._report()

    async def health(self, _: Request) -> Response:
        """The report of this moment."""
        return self._report()

    def _report(self) -> Response:
        report = self._status.report(self._engine.load())
        return Response(report.model_dump_json(), media_type="application/json")

    async def _stream(self, wanted: GenerateRequest) -> AsyncIterator[str]:
        chunks: asyncio.Queue[GenerateChunk] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def deliver(chunk: GenerateChunk) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
                loop.call_soon_threadsafe(chunks.put_nowait, chunk)

        ended = False
        self._engine.submit(wanted, deliver)
        try:
            while not ended:
                chunk = await chunks.get()
                ended = chunk.finish_reason is not None or chunk.error is not None
                yield self._as_line(chunk)
        finally:
            if not ended:
                self._engine.cancel(wanted.request_id)

    def _as_line(self, chunk: GenerateChunk) -> str:
        if self.stopping and chunk.finish_reason is FinishReason.CANCELLED:
            chunk = chunk.model_copy(
                update={"finish_reason": None, "error": "the pool was stopped"}
            )
        return chunk.model_dump_json() + "\n"


def _error(status: int, sentence: str) -> JSONResponse:
    return JSONResponse({"error": sentence}, status)
