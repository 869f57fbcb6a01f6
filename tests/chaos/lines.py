"""TCP lines between processes that can be cut: what a network partition looks like from both ends.

    client ──► Line (a port of its own) ──► target's port

`cut` breaks every connection and lets no new one through; `swallow` keeps connections open and
carries nothing, as a network does that drops packets; `heal` lets what is kept go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any


class Line:
    """One line; its methods may be called from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, target_port: int) -> None:
        self.target_port, self.port = target_port, 0
        self._loop, self._writers = loop, set[asyncio.StreamWriter]()
        self._open, self._refusing = asyncio.Event(), False
        self._open.set()

    async def listen(self) -> None:
        """Take a free port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Listen no more; called in the loop."""
        self._server.close()

    def cut(self) -> None:
        """Break what is open and refuse what comes."""
        self._do(self._cut)

    def swallow(self) -> None:
        """Carry nothing, and say nothing."""
        self._do(self._open.clear)

    def heal(self) -> None:
        """Carry again."""
        self._do(self._heal)

    def _do(self, change: Callable[[], None]) -> None:
        """Returns when it is done."""
        done = threading.Event()
        self._loop.call_soon_threadsafe(change)
        self._loop.call_soon_threadsafe(done.set)
        assert done.wait(10)

    def _cut(self) -> None:
        self._refusing = True
        for writer in self._writers:
            writer.transport.abort()

    def _heal(self) -> None:
        self._refusing = False
        self._open.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        self._writers.add(writer)
        try:
            await self._open.wait()
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        except OSError:
            self._writers.discard(writer)
            writer.transport.abort()
            return
        self._writers.add(far_writer)
        try:
            await asyncio.gather(self._carry(reader, far_writer), self._carry(far_reader, writer))
        finally:
            for end in (writer, far_writer):
                self._writers.discard(end)
                end.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
            writer.write_eof()
            return
        for end in tuple(self._writers):
            if end is writer:
                end.transport.abort()


class Lines:
    """All lines, in a thread of their own; a context manager."""

    def __init__(self) -> None:
        self._loop, self._lines = asyncio.new_event_loop(), list[Line]()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Lines:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def to(self, target_port: int) -> Line:
        """A new line to a port on this machine."""
        line = Line(self._loop, target_port)
        self._call(line.listen())
        self._lines.append(line)
        return line

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _end(self) -> None:
        for line in self._lines:
            line.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
