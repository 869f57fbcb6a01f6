"""Requests for leases, held open until there is one: first come, first served.

Only one task asks the ledger, whatever the number of waiting workers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tradewind.ledger.rollouts import LeasedRollout
from tradewind.types.ids import RolloutId

Gone = Callable[[], Awaitable[bool]]
Lend = Callable[[str], Awaitable[LeasedRollout | None]]
TakeBack = Callable[[RolloutId], Awaitable[None]]


@dataclass
class Request:
    """A worker that waits."""

    worker: str
    gone: Gone
    """Whether it has hung up: then a lease would be lost on it."""
    answer: asyncio.Future[LeasedRollout | None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class LeaseQueue:
    """`wait` for a lease; `serve` hands them out."""

    def __init__(self) -> None:
        self._waiting: deque[Request] = deque()
        self._closed = False

    async def wait(self, worker: str, seconds: float, gone: Gone) -> LeasedRollout | None:
        """A lease for `worker`, or None after so many seconds."""
        if self._closed:
            return None
        request = Request(worker, gone)
        self._waiting.append(request)
        await asyncio.wait([request.answer], timeout=seconds)
        if not request.answer.done():
            request.answer.cancel()
            return None
        return request.answer.result()

    async def serve(self, lease: Lend, take_back: TakeBack) -> int:
        """Hand out leases until there are none or nobody waits; how many were handed out."""
        given = 0
        while self._waiting:
            request = self._waiting[0]
            if request.answer.done() or await request.gone():
                self._waiting.popleft()
                continue
            leased = await lease(request.worker)
            if leased is None:
                break
            self._waiting.popleft()
            if request.answer.done():  # it gave up while the ledger was asked
                await take_back(leased.rollout_id)
                continue
            request.answer.set_result(leased)
            given += 1
        return given

    def close(self) -> None:
        """Answer everybody with no lease, now and from now on."""
        self._closed = True
        while self._waiting:
            request = self._waiting.popleft()
            if not request.answer.done():
                request.answer.set_result(None)
