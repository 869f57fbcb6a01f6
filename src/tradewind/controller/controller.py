"""The controller's state and its background tasks; the routes are in `app`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from tradewind.controller.config import ControllerConfig
from tradewind.controller.facts import Facts
from tradewind.controller.leasing import Asked, Gone, LeaseQueue
from tradewind.controller.rounds import Rounds
from tradewind.controller.status import read_status
from tradewind.ledger.ledger import Ledger
from tradewind.ledger.rollouts import LeasedRollout, LeaseTerms
from tradewind.types.errors import Conflict, LedgerAway, Stalled, UserError
from tradewind.types.ids import RolloutId
from tradewind.types.lease import Lease
from tradewind.types.record import Json
from tradewind.types.task import Split
from tradewind.types.weights import PoolReport

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("controller")


class Controller:
    """`run` is what goes on by itself; every other method is called by a route."""

    def __init__(self, config: ControllerConfig, ledger: Ledger) -> None:
        self.config, self.ledger = config, ledger
        self.rounds = Rounds(config, ledger, time.time)
        self.leases = LeaseQueue(config.max_waiting)
        self.facts: Facts = self.rounds.facts()
        self._due = asyncio.Event()
        self._stopped = False
        self._round_at = 0.0
        """When the next round is due, in monotonic seconds."""

    async def run(self, ended: Callable[[], bool] = lambda: False) -> None:
        """A round every `tick_s`, and in between leases for those who come.

        Until `stop`, or until `ended` says so; then nobody waits for a lease any longer.
        """
        await self.call(self.ledger.renew_all, time.time())
        looks = asyncio.create_task(self._look(ended))
        try:
            while not self._stopped and not ended():
                if looks.done():
                    break  # it does not end by itself: what ended it is raised below
                try:
                    if time.monotonic() >= self._round_at:
                        self._round_at = time.monotonic() + self.config.tick_s
                        self.facts = await asyncio.to_thread(self.rounds.round)
                    await self.leases.serve(self._lend, self._take_back)
                except (LedgerAway, Stalled) as error:  # the next round reads what came of it
                    log.warning("%s", error)
                await self._something_due()
        finally:
            self._stopped = True
            self.leases.close()
            await looks

    def round_now(self) -> None:
        """Something has happened that should not wait for the next tick."""
        self._round_at = 0.0
        self._due.set()

    def stop(self) -> None:
        """End after the round at hand."""
        self._stopped = True
        self._due.set()

    async def lease(self, asked: Asked, wait_s: float, gone: Gone) -> Lease | None:
        """A lease for a worker, or None if there is none within `wait_s` seconds.

        Raises `OverQuota` if the tenant's quota is used up.
        """
        self.rounds.workers[asked.worker] = time.time()
        self._due.set()
        leased = await self.leases.wait(asked, min(wait_s, self.config.max_wait_s), gone)
        self.rounds.workers[asked.worker] = time.time()
        return None if leased is None else self._lease_record(leased)

    async def report(self, report: PoolReport) -> list[int]:
        """Keep a pool's report; the versions whose proofs are on record.

        Raises `UserError` if the pool holds another base model than the run.
        """
        base = await self.call(self._base_state_id)
        if base is not None and report.base_state_id != base:
            raise UserError(
                f"pool {report.pool} holds another base model ({report.base_state_id}) than this "
                f"run ({base})",
                fix="start the pool with the run's model folder",
            )
        return await self.call(self.ledger.record_pool, report, time.time())

    async def set_training(self, *, opened: bool) -> None:
        """Open or close training; raises `UserError` if there is nothing to train on."""
        if opened and not await self.call(self.ledger.tasks, Split.TRAIN):
            raise UserError("the taskset has no training tasks", fix="add tasks with split 'train'")
        await self.call(self.ledger.set_meta, "training_open", opened)
        self.round_now()

    async def status(self) -> Json:
        """Where the run stands, and who waits for whom."""

        def read() -> Json:
            facts, stalls = self.rounds.facts(), self.rounds.stalls
            return read_status(self.ledger, facts, self.config, stalls.stalled_s(facts.now))

        return await self.call(read)

    async def call(self, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the ledger off the event loop."""
        return await asyncio.to_thread(method, *args, **kwargs)

    async def _look(self, ended: Callable[[], bool]) -> None:
        """Judges and alarms, beside the rounds: among thousands of rollouts a look takes half a
        second, for which no lease shall wait.
        """
        while not self._stopped and not ended():
            try:
                await self.call(self.rounds.look)
            except (LedgerAway, Stalled) as error:
                log.warning("%s", error)
            await asyncio.sleep(self.config.tick_s)

    async def _something_due(self) -> None:
        left = self._round_at - time.monotonic()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._due.wait(), max(0.0, left))
        self._due.clear()

    async def _lend(self, asked: Asked) -> LeasedRollout | None:
        config = self.config
        terms = LeaseTerms(
            ttl_s=config.lease_ttl_s,
            deadline_s=config.rollout_deadline_s,
            max_running=config.max_running,
            training=self.facts.training,
            token_budget=config.token_budget,
            tenant=asked.tenant,
            request=asked.request,
        )
        served = self.facts.served(config)
        leased = await self.call(self.ledger.lease_next, asked.worker, time.time(), terms, served)
        if leased is not None:
            log.info("%s leased to %s", leased.rollout_id, asked.worker)
        return leased

    async def _take_back(self, rollout: RolloutId) -> None:
        with contextlib.suppress(Conflict):  # it may have run out meanwhile
            await self.call(self.ledger.unlease, rollout)

    def _lease_record(self, leased: LeasedRollout) -> Lease:
        return Lease(
            rollout_id=leased.rollout_id,
            task_id=leased.task_id,
            input=leased.input,
            base_url=self.config.gateway_url,
            model=self.config.model,
            model_key=leased.model_key,
            result_key=leased.result_key,
            deadline=leased.deadline,
            heartbeat_s=self.config.heartbeat_s,
        )

    def _base_state_id(self) -> str | None:
        base = self.ledger.version(0)
        return None if base is None else base.state_id
