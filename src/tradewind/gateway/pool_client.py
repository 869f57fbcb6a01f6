"""The token route of a pool, as the gateway calls it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import httpx
from pydantic import ValidationError

from tradewind.gateway.config import GatewayConfig
from tradewind.types import GenerateChunk, GenerateRequest, TradewindError


class PoolFailed(TradewindError):
    """A pool that broke off, refused, or sent what is not the token route.

    `gone` says that the pool itself is in trouble, not only this request.
    """

    def __init__(self, cause: str, *, gone: bool) -> None:
        self.cause, self.gone = cause, gone
        super().__init__(cause)


class PoolClient:
    """Keeps connections to all pools. Leaving `stream` early ends the request at the pool."""

    def __init__(self, key: str, config: GatewayConfig) -> None:
        timeout = httpx.Timeout(
            connect=config.pool_connect_s, read=config.pool_silence_s, write=10.0, pool=None
        )
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=256)
        self._http = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {key}"}, timeout=timeout, limits=limits
        )
        self._cancelling: set[asyncio.Task[None]] = set()

    async def stream(
        self, url: str, request: GenerateRequest
    ) -> AsyncGenerator[GenerateChunk, None]:
        """Chunks until the last one; raises `PoolFailed` if that one does not come."""
        try:
            async with self._http.stream(
                "POST",
                f"{url}/v1/generate",
                content=request.model_dump_json(),
                headers={"Content-Type": "application/json"},
            ) as response:
                if response.status_code != 200:
                    raise await _refused(response)
                rest = b""
                async for data in response.aiter_raw():
                    *lines, rest = (rest + data).split(b"\n")
                    for line in lines:
                        if line.strip():
                            yield _chunk(line)
        except httpx.TimeoutException as error:
            raise PoolFailed(f"silent for too long ({type(error).__name__})", gone=True) from error
        except httpx.TransportError as error:
            raise PoolFailed(f"connection lost ({type(error).__name__})", gone=True) from error

    def cancel(self, url: str, request_id: str) -> None:
        """Asks the pool to end a request, and waits for nothing: it may be gone."""
        task = asyncio.create_task(self._cancel(url, request_id))
        self._cancelling.add(task)
        task.add_done_callback(self._cancelling.discard)

    async def close(self) -> None:
        """Closes all connections."""
        if self._cancelling:
            await asyncio.wait(self._cancelling)
        await self._http.aclose()

    async def _cancel(self, url: str, request_id: str) -> None:
        with contextlib.suppress(httpx.HTTPError):
            await self._http.post(f"{url}/v1/cancel/{request_id}", timeout=2.0)


def _chunk(line: bytes) -> GenerateChunk:
    try:
        chunk = GenerateChunk.model_validate_json(line)
    except ValidationError as error:
        raise PoolFailed(f"sent a line that is no chunk: {line[:200]!r}", gone=True) from error
    if chunk.error is not None:
        raise PoolFailed(chunk.error, gone=False)
    return chunk


async def _refused(response: httpx.Response) -> PoolFailed:
    body = (await response.aread())[:300].decode("utf-8", "replace")
    # 4xx other than these are about this request; a wrong key or an overload is the pool's state.
    gone = response.status_code >= 500 or response.status_code in (401, 403, 404, 429)
    return PoolFailed(f"status {response.status_code}: {body}", gone=gone)
