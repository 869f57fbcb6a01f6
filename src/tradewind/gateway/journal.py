"""The ledger as the gateway uses it, off the event loop.

    write, later ──► queue ──► one thread: all that waits, in one transaction ──► who waits

Writes keep the order in which they were asked for: SQLite has one writer anyway, and threads would
only wait for each other in its busy loop. Whoever waits hears of success after the commit. Reads
never wait for writes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec, TypeVar

from tradewind.ledger.ledger import Ledger

P = ParamSpec("P")
T = TypeVar("T")

_MOST = 64
"""Writes of one transaction: other processes wait for its end."""


@dataclass
class _Write:
    """Something to be written, and what came of it."""

    run: Callable[[], Any]
    waits: asyncio.Future[Any] | None
    """None if nobody does."""
    result: Any = None
    error: BaseException | None = None

    def attempt(self) -> None:
        """One write that fails leaves the others of its transaction alone."""
        try:
            self.result = self.run()
        except Exception as error:  # noqa: BLE001  # boundary: told to the one who waits for it
            self.error = error

    def tell(self) -> None:
        """In the event loop."""
        if self.waits is None or self.waits.done():
            return
        if self.error is not None:
            self.waits.set_exception(self.error)
        else:
            self.waits.set_result(self.result)


class Journal:
    """Awaitable calls of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._queue: deque[_Write] = deque()
        self._writing = self._closed = False
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="ledger-write")
        self._readers = ThreadPoolExecutor(2, thread_name_prefix="ledger-read")

    async def write(self, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a writing method after all those asked for before; returns once it is committed."""
        waits: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._ask(_Write(partial(method, *args, **kwargs), waits))
        return await waits

    async def read(self, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a reading method."""
        call = partial(method, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._readers, call)

    def later(self, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> None:
        """Asks for a write that nobody waits for; `close` does."""
        self._ask(_Write(partial(method, *args, **kwargs), None))

    async def close(self) -> None:
        """Ends after every write that was asked for."""
        rest, self._closed = list(self._queue), True
        self._queue.clear()
        if rest:
            self._writer.submit(self._commit, rest)
        await asyncio.to_thread(self._writer.shutdown)
        for write in rest:
            write.tell()
        self._readers.shutdown()

    def _ask(self, write: _Write) -> None:
        assert not self._closed, "nothing is written after the end"
        self._queue.append(write)
        if not self._writing:
            self._write_next()

    def _write_next(self) -> None:
        """All that waits, while there is anything."""
        writes = [self._queue.popleft() for _ in range(min(_MOST, len(self._queue)))]
        self._writing = bool(writes)
        if writes:
            loop = asyncio.get_running_loop()
            self._writer.submit(self._commit, writes).add_done_callback(
                lambda _: loop.call_soon_threadsafe(self._committed, writes)
            )

    def _committed(self, writes: list[_Write]) -> None:
        for write in writes:
            write.tell()
        self._write_next()

    def _commit(self, writes: list[_Write]) -> None:
        """In the writer's thread."""
        if len(writes) == 1:
            writes[0].attempt()
            return
        try:
            with self.ledger.together():
                for write in writes:
                    write.attempt()
        except Exception as error:  # noqa: BLE001  # boundary: nothing of it is in the ledger
            for write in writes:
                write.error = error
