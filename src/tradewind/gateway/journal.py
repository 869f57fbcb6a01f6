"""The ledger as the gateway uses it, off the event loop.

Writes go through one thread, in the order in which they were asked for: SQLite has one writer
anyway, and threads would only wait for each other in its busy loop. Reads never wait for writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from tradewind.ledger.ledger import Ledger

P = ParamSpec("P")
T = TypeVar("T")


class Journal:
    """Awaitable calls of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="ledger-write")
        self._readers = ThreadPoolExecutor(2, thread_name_prefix="ledger-read")

    async def write(self, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a writing method after all those asked for before."""
        return await self._run(self._writer, lambda: method(*args, **kwargs))

    async def read(self, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a reading method."""
        return await self._run(self._readers, lambda: method(*args, **kwargs))

    def later(self, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> None:
        """Asks for a write that nobody waits for; `close` does."""
        self._writer.submit(method, *args, **kwargs)

    def close(self) -> None:
        """Ends after every write that was asked for."""
        self._writer.shutdown(wait=True)
        self._readers.shutdown(wait=True)

    @staticmethod
    async def _run(executor: ThreadPoolExecutor, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(executor, call)
