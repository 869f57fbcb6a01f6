"""Leases in, outcomes out; many rollouts at a time in one event loop."""

from __future__ import annotations

import asyncio
import logging
import time

from tradewind.envs.secrets import Secrets
from tradewind.types.errors import Conflict
from tradewind.types.lease import Lease
from tradewind.types.outcome import Outcome, OutcomeStatus
from tradewind.worker.client import ControllerClient
from tradewind.worker.config import WorkerConfig
from tradewind.worker.play import Player

log = logging.getLogger("worker")

_STOPPED = Outcome(status=OutcomeStatus.INFRA_ERROR, detail="the worker was stopped")
_HAND_BACK_S = 1.5
_QUICK_S = 0.2


class Worker:
    """`run` until `stop`."""

    def __init__(
        self,
        play: Player,
        client: ControllerClient,
        config: WorkerConfig,
        secrets: Secrets | None = None,
    ) -> None:
        """`play` plays one lease; `secrets` are taken out of every outcome (None: no secrets)."""
        self._play, self._client, self._config = play, client, config
        self._secrets = secrets or Secrets({})
        self._running: set[asyncio.Task[None]] = set()
        self._free = asyncio.Semaphore(config.concurrency)
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Lease while there is a free place, until `stop`; then finish or hand back.

        Raises `UserError` if the controller refuses this worker.
        """
        leasing = asyncio.create_task(self._lease_forever())
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({leasing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            leasing.cancel()
            await self._finish_or_hand_back()
        if leasing.done() and not leasing.cancelled():
            leasing.result()

    def stop(self) -> None:
        """Take no more leases; give running rollouts `grace_s` seconds."""
        self._stopping.set()

    async def _lease_forever(self) -> None:
        while True:
            await self._free.acquire()
            asked = time.monotonic()
            lease = await self._client.lease()
            if lease is None:
                self._free.release()
                if time.monotonic() - asked < _QUICK_S:  # a controller that is closing
                    await asyncio.sleep(_QUICK_S)
                continue
            task = asyncio.create_task(self._serve(lease), name=lease.rollout_id)
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._free.release()
        if not task.cancelled() and task.exception() is not None:
            log.error("%s: %s", task.get_name(), task.exception())

    async def _serve(self, lease: Lease) -> None:
        """Play, with heartbeats, and report; a lost lease ends it without a report."""
        playing = asyncio.ensure_future(self._play(lease))
        beating = asyncio.create_task(self._beat(lease, playing))
        outcome: Outcome | None = None
        try:
            outcome = await playing
            await self._report(lease, outcome, self._config.report_s)
        except asyncio.CancelledError:
            playing.cancel()
            if outcome is None and not self._stopping.is_set():
                log.warning("%s: the lease is lost", lease.rollout_id)
                return
            await self._report(lease, outcome or _STOPPED, _HAND_BACK_S)
        finally:
            beating.cancel()

    async def _beat(self, lease: Lease, playing: asyncio.Future[Outcome]) -> None:
        while True:
            await asyncio.sleep(lease.heartbeat_s)
            try:
                await self._client.heartbeat(lease)
            except Conflict:
                playing.cancel()
                return

    async def _report(self, lease: Lease, outcome: Outcome, within_s: float) -> None:
        keys = Secrets({"the model key": lease.model_key, "the result key": lease.result_key})
        outcome = keys.scrub(self._secrets.scrub(outcome))
        try:
            counts_as = await self._client.report(lease, outcome, within_s)
        except Conflict as error:
            log.warning("%s: outcome not accepted: %s", lease.rollout_id, error)
            return
        detail = f" ({outcome.detail})" if outcome.detail else ""
        log.info("%s %s%s", lease.rollout_id, counts_as, detail)

    async def _finish_or_hand_back(self) -> None:
        if not self._running:
            return
        log.info("%d rollouts are running", len(self._running))
        _done, late = await asyncio.wait(self._running, timeout=self._config.grace_s)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=_HAND_BACK_S)
