"""HTTP/1.1 as lean as it gets: engine and load share one core and must not be what is measured."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

Handler = Callable[[str, bytes, asyncio.StreamWriter], Awaitable[None]]


async def serve(handle: Handler) -> asyncio.Server:
    """`handle(path, body, writer)` for each request, on a free port of loopback."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(length_of(head))
                await handle(head.split(b" ", 2)[1].decode(), body, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    return await asyncio.start_server(connected, "127.0.0.1", 0, limit=1 << 24, backlog=4096)


def length_of(head: bytes) -> int:
    """Of a body, by its headers."""
    lower = head.lower()
    at = lower.find(b"content-length:")
    return 0 if at < 0 else int(lower[at + 15 : lower.index(b"\r", at)])


def answer(writer: asyncio.StreamWriter, body: bytes, kind: bytes = b"application/json") -> None:
    """A whole answer."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n"
    writer.write(head % (kind, len(body)) + body)


def begin(writer: asyncio.StreamWriter, kind: bytes) -> None:
    """An answer in pieces."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ntransfer-encoding: chunked\r\n\r\n"
    writer.write(head % kind)


def piece(writer: asyncio.StreamWriter, data: bytes) -> None:
    """One of them; an empty one ends it."""
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))


class Client:
    """One connection that is kept."""

    def __init__(self, url: str, key: str) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._where, self._key = (host, int(port)), key
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def post(self, path: str, body: Any, key: str | None = None) -> bytes:
        """The body of the answer; raises `RuntimeError` unless it is 200."""
        await self.send(path, body, key)
        assert self._reader is not None
        head = await self._reader.readuntil(b"\r\n\r\n")
        if b"chunked" in head.lower():
            data = await self._chunks()
        else:
            data = await self._reader.readexactly(length_of(head))
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"{head[:60]!r} {data[:300]!r}")
        return data

    async def send(self, path: str, body: Any, key: str | None = None) -> None:
        """Only the request."""
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(*self._where, limit=1 << 24)
        data = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key or self._key}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
        )
        self._writer.write(head.encode() + data)

    async def first(self) -> bytes:
        """Up to the first event of a stream."""
        assert self._reader is not None
        head = await self._reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"{head[:80]!r}")
        return await self._reader.readuntil(b"\n\n")

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    async def _chunks(self) -> bytes:
        assert self._reader is not None
        parts = []
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            parts.append(await self._reader.readexactly(size))
            await self._reader.readexactly(2)
        await self._reader.readexactly(2)
        return b"".join(parts)
