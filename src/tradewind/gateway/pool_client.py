"""The token route of a pool, as the gateway calls it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import aiohttp
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
    """Keeps connections to all pools. Leaving `stream` early ends the request at the pool.

    aiohttp, because its parser is in C: with httpx this client was half of the gateway's work.
    """

    def __init__(self, key: str, config: GatewayConfig) -> None:
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._timeout = aiohttp.ClientTimeout(
            total=None,
            sock_connect=config.pool_connect_s,
            sock_read=config.pool_silence_s,
        )
        self._made: aiohttp.ClientSession | None = None
        self._cancelling: set[asyncio.Task[None]] = set()

    async def stream(
        self, url: str, request: GenerateRequest
    ) -> AsyncGenerator[GenerateChunk, None]:
        """Chunks until the last one; raises `PoolFailed` if that one does not come."""
        body = request.model_dump_json().encode()
        try:
            async with self._http.post(f"{url}/v1/generate", data=body) as response:
                if response.status != 200:
                    raise await _refused(response)
                rest = b""
                async for data in response.content.iter_any():
                    *lines, rest = (rest + data).split(b"\n")
                    for line in lines:
                        if line.strip():
                            yield _chunk(line)
        except TimeoutError as error:  # aiohttp's own are subclasses
            raise PoolFailed(f"silent for too long ({type(error).__name__})", gone=True) from error
        except (aiohttp.ClientError, OSError) as error:
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
        if self._made is not None:
            await self._made.close()

    @property
    def _http(self) -> aiohttp.ClientSession:
        """Made in the loop that uses it."""
        if self._made is None:
            self._made = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
                headers=self._headers,
                timeout=self._timeout,
                auto_decompress=False,
            )
        return self._made

    async def _cancel(self, url: str, request_id: str) -> None:
        brief = aiohttp.ClientTimeout(total=2.0)
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with self._http.post(f"{url}/v1/cancel/{request_id}", timeout=brief):
                pass


def _chunk(line: bytes) -> GenerateChunk:
    try:
        chunk = GenerateChunk.model_validate_json(line)
    except ValidationError as error:
        raise PoolFailed(f"sent a line that is no chunk: {line[:200]!r}", gone=True) from error
    if chunk.error is not None:
        raise PoolFailed(chunk.error, gone=False)
    return chunk


async def _refused(response: aiohttp.ClientResponse) -> PoolFailed:
    body = (await response.read())[:300].decode("utf-8", "replace")
    # 4xx other than these are about this request; a wrong key or an overload is the pool's state.
    gone = response.status >= 500 or response.status in (401, 403, 404, 429)
    return PoolFailed(f"status {response.status}: {body}", gone=gone)
