"""A TCP proxy that cuts lines, loses answers, and remembers every byte that went out."""

from __future__ import annotations

import asyncio
import contextlib


class LossyProxy:
    """Between a worker and one server; use as an async context manager."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._lines: set[asyncio.StreamWriter] = set()
        self._relays: set[asyncio.Task[None]] = set()
        self.sent = bytearray()
        """What the worker sent, all lines together."""
        self.is_down = False
        """Whether new lines are dropped at once."""
        self.lose_after: bytes | None = None
        """The answer to the next request that contains it is lost, and its line with it."""
        self.lost = asyncio.Event()

    async def __aenter__(self) -> LossyProxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        for task in self._relays:
            task.cancel()
        await asyncio.gather(*self._relays, return_exceptions=True)

    def cut(self) -> None:
        """Drop every line, as a router does that restarts."""
        for line in list(self._lines):
            line.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._relays.add(task)
        task.add_done_callback(self._relays.discard)
        if self.is_down:
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        lossy = asyncio.Event()
        self._lines |= {writer, back}
        try:
            await asyncio.gather(
                self._out(reader, back, lossy), self._in(there, writer, back, lossy)
            )
        finally:
            self._lines -= {writer, back}

    async def _out(
        self, reader: asyncio.StreamReader, back: asyncio.StreamWriter, lossy: asyncio.Event
    ) -> None:
        with contextlib.suppress(ConnectionError, OSError):
            while piece := await reader.read(65536):
                self.sent += piece
                if self.lose_after is not None and self.lose_after in piece:
                    self.lose_after = None
                    lossy.set()
                back.write(piece)
                await back.drain()
        back.transport.abort()

    async def _in(
        self,
        there: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        back: asyncio.StreamWriter,
        lossy: asyncio.Event,
    ) -> None:
        with contextlib.suppress(ConnectionError, OSError):
            while piece := await there.read(65536):
                if lossy.is_set():
                    self.lost.set()
                    break
                writer.write(piece)
                await writer.drain()
        writer.transport.abort()
        back.transport.abort()
