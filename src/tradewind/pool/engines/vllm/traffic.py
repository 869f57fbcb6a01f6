"""Who is served when: requests wait here, and are sent to vLLM as it has rows for them.

    add ──► waiting (users first) ──► admitted ──► one stream each ──► chunks
                    ▲
    hold, release ──┘  during a swap nobody is admitted

vLLM itself orders by priority but never evicts, so a user behind a full batch would wait for
rollouts. Rows for users are kept free instead (promise U1).
"""

from __future__ import annotations

import asyncio
import logging
from bisect import insort

from tradewind.pool.engine import user_share
from tradewind.pool.engines.vllm.client import VllmClient, VllmFailed
from tradewind.pool.engines.vllm.pending import Pending
from tradewind.pool.rate import Rate
from tradewind.types import FinishReason, Priority

log = logging.getLogger(__name__)

CANCEL_S = 5.0
"""For vLLM to end a cancelled request; then its connection is closed."""


class Traffic:
    """Used by the engine's event loop only, but for `running`, `waiting` and `rate`. Nobody
    is admitted before the first `release`.
    """

    def __init__(self, client: VllmClient, max_batch: int) -> None:
        self._client, self._max_batch = client, max_batch
        self._waiting: list[Pending] = []
        self._running: dict[Pending, asyncio.Task[None]] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._held = True
        self._salt = ""
        self._label = 0
        self.rate = Rate()
        self.version = 0
        """By which vLLM decodes."""
        self.closed: str | None = None
        """Why nobody is admitted any more."""

    @property
    def running(self) -> int:
        """Requests that vLLM has."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Requests that are not sent yet."""
        return len(self._waiting)

    def add(self, pending: Pending) -> None:
        """Queues a request: users first, then by arrival."""
        known = [*self._running, *self._waiting]
        name = pending.request.request_id
        if self.closed is not None:
            pending.fail(self.closed, self.version)
        elif any(other.request.request_id == name for other in known):
            pending.fail(f"request {name} is running already", self.version)
        else:
            insort(self._waiting, pending, key=lambda p: p.rank)
            self._admit()

    def cancel(self, request_id: str) -> None:
        """Ends a request soon; unknown ids are ignored."""
        for pending in self._waiting:
            if pending.request.request_id == request_id:
                self._waiting.remove(pending)
                pending.finish(FinishReason.CANCELLED, self.version)
                return
        for pending, serving in self._running.items():
            if pending.request.request_id == request_id and not pending.cancelled:
                pending.cancelled = True
                task = asyncio.create_task(self._abort(pending, serving))
                self._background.add(task)
                task.add_done_callback(self._background.discard)

    def hold(self, coming: int) -> None:
        """A swap to `coming` begins: nobody is admitted until `release`. Which tokens the old
        weights have still sampled is not known at once, so a user's count as new ones.
        """
        self._held, self._label = True, coming
        for pending in self._running:
            pending.straddles = True

    def release(self, version: int, salt: str) -> None:
        """Decoding goes on by `version`; prefixes are shared under `salt` only."""
        self.version, self._salt, self._held = version, salt, False
        self._label = version
        self._admit()

    async def close(self, error: str | None) -> None:
        """Ends everybody: with an error, or as cancelled."""
        self.closed = error or "the engine was stopped"
        for pending in [*self._running, *self._waiting]:
            if error is not None:
                pending.fail(error, self.version)
            else:
                pending.finish(FinishReason.CANCELLED, self.version)
        self._waiting.clear()
        tasks = [*self._running.values(), *self._background]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _admit(self) -> None:
        while self._waiting and not self._held and self._has_row(self._waiting[0]):
            pending = self._waiting.pop(0)
            pending.version = self.version
            self._running[pending] = asyncio.create_task(self._serve(pending))

    def _has_row(self, pending: Pending) -> bool:
        if pending.request.priority is Priority.USER:
            return len(self._running) < self._max_batch + user_share(self._max_batch)
        return len(self._running) < self._max_batch

    async def _serve(self, pending: Pending) -> None:
        """One request from its first token to its last chunk."""
        try:
            async for event in self._client.stream(pending.body(self._salt)):
                self.rate.add(pending.hear(event, self._label))
                if pending.deaf:
                    break
            if not pending.ended:
                raise VllmFailed("vLLM ended a request without a reason")
        except VllmFailed as error:
            pending.fail(str(error), self.version)
        except asyncio.CancelledError:
            pending.finish(FinishReason.CANCELLED, self.version)
        except Exception as error:  # boundary: one request's fault is not the others'
            log.exception("request %s failed", pending.request.request_id)
            pending.fail(f"vLLM's answer could not be read ({error})", self.version)
        finally:
            del self._running[pending]
            if self.closed is None:
                self._admit()

    async def _abort(self, pending: Pending, serving: asyncio.Task[None]) -> None:
        """vLLM's last event then carries what was sampled; without it the stream is closed."""
        try:
            name = f"generate-tokens-{pending.name}"
            await self._client.post("/inference/v1/abort_requests", {"request_ids": [name]})
            await asyncio.wait([serving], timeout=CANCEL_S)
        except VllmFailed as error:
            log.warning("%s", error)
        serving.cancel()
