"""Requests for leases, held open until there is one.

First come, first served within a tenant; tenants take turns, so none waits behind another's
quota or for another's kind of task. Only one task asks the ledger, whatever the number of waiting
workers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tradewind.ledger.rollouts import LeasedRollout
from tradewind.ledger.tenants import OverQuota, Tenant
from tradewind.types.ids import RolloutId

_CROWDED_S = 5.0
"""After so long whoever was turned away may ask again."""


@dataclass(frozen=True)
class Asked:
    """Who asks for a lease."""

    worker: str
    tenant: Tenant | None = None
    """None: with the run's own worker key."""
    request: str | None = None
    """The caller's id of the request; None if it gives none."""

    @property
    def whose(self) -> str | None:
        """The tenant's name."""
        return None if self.tenant is None else self.tenant.name


Gone = Callable[[], Awaitable[bool]]
Lend = Callable[[Asked], Awaitable[LeasedRollout | None]]
TakeBack = Callable[[RolloutId], Awaitable[None]]


@dataclass
class Request:
    """A worker that waits."""

    asked: Asked
    gone: Gone
    """Whether it has hung up: then a lease would be lost on it."""
    answer: asyncio.Future[LeasedRollout | None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class LeaseQueue:
    """`wait` for a lease; `serve` hands them out."""

    def __init__(self, most: int) -> None:
        """`most` requests wait at the same time."""
        self._most = most
        self._waiting: dict[str | None, deque[Request]] = {}
        self._closed = False

    async def wait(self, asked: Asked, seconds: float, gone: Gone) -> LeasedRollout | None:
        """A lease, or None after so many seconds.

        Raises `OverQuota` if a quota is used up, or too many wait already.
        """
        if self._closed:
            return None
        self._check_room(asked)
        request = Request(asked, gone)
        self._waiting.setdefault(asked.whose, deque()).append(request)
        await asyncio.wait([request.answer], timeout=seconds)
        if not request.answer.done():
            request.answer.cancel()
            return None
        return request.answer.result()

    def _check_room(self, asked: Asked) -> None:
        live = {who: sum(not r.answer.done() for r in q) for who, q in self._waiting.items()}
        own = live.get(asked.whose, 0)
        if asked.tenant is not None and own >= asked.tenant.max_open:
            said = f"{own} requests of tenant {asked.whose} wait already, as many as it may hold"
            raise OverQuota(f"{said} leases", _CROWDED_S)
        if sum(live.values()) >= self._most:
            raise OverQuota(f"{self._most} requests wait for a lease already", _CROWDED_S)

    async def serve(self, lend: Lend, take_back: TakeBack) -> int:
        """Hand out leases until there are none or nobody waits; how many were handed out."""
        given, turns = 0, deque(self._waiting)
        while turns:
            whose = turns.popleft()
            if await self._serve_one(self._waiting[whose], lend, take_back):
                given += 1
                turns.append(whose)
            if not self._waiting[whose] and whose not in turns:
                del self._waiting[whose]
        return given

    async def _serve_one(
        self, waiting: deque[Request], lend: Lend, take_back: TakeBack
    ) -> LeasedRollout | None:
        """Hand one lease to the first of a tenant who still waits; None if there is none now."""
        while waiting:
            request = waiting[0]
            if request.answer.done() or await request.gone():
                waiting.popleft()
                continue
            try:
                leased = await lend(request.asked)
            except OverQuota as refusal:
                waiting.popleft()
                if not request.answer.done():
                    request.answer.set_exception(refusal)
                continue
            if leased is None:
                return None
            waiting.popleft()
            if request.answer.done():  # it gave up while the ledger was asked
                await take_back(leased.rollout_id)
                continue
            request.answer.set_result(leased)
            return leased
        return None

    def close(self) -> None:
        """Answer everybody with no lease, now and from now on."""
        self._closed = True
        for request in [r for waiting in self._waiting.values() for r in waiting]:
            if not request.answer.done():
                request.answer.set_result(None)
        self._waiting.clear()
