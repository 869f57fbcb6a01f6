"""A customer's server in push mode: signed calls, and one lease played there."""

from __future__ import annotations

import asyncio
import logging
import time

import httpx
from pydantic import ValidationError

from tradewind.envs.signature import sign
from tradewind.http.retry import pauses, retry_after
from tradewind.types.assignment import (
    Assignment,
    PolicyAccess,
    Progress,
    RolloutState,
    hash_of,
    seed_of,
)
from tradewind.types.lease import Lease
from tradewind.types.outcome import Outcome, OutcomeStatus
from tradewind.worker.config import PushConfig
from tradewind.worker.egress import Egress, EgressRefused

log = logging.getLogger("push")

_CANCEL_S = 5.0
_LATE_S = 5.0
_FULL = "status 429"


class Unplayable(Exception):
    """The customer's server cannot play this; the message is the cause."""


class Customer:
    """`play` is what a `Worker` calls for each lease."""

    def __init__(self, egress: Egress, key: tuple[str, str], config: PushConfig) -> None:
        """`key` is (id, secret)."""
        self._egress, self._key, self._config = egress, key, config

    async def play(self, lease: Lease) -> Outcome:
        """Ask for the rollout and poll until it is over; cancelled, it is cancelled there too.

        What the customer's server cannot do is ENV_ERROR. One that is still not done a little
        after the deadline is AGENT_LIMIT, as in a worker.
        """
        path = f"/rollouts/{lease.rollout_id}"
        body = self._assignment(lease).model_dump_json().encode()
        limit = asyncio.timeout(lease.deadline - time.time() + _LATE_S)
        try:
            async with limit:
                progress = await self._call("POST", "/rollouts", body)
                while not progress.state.over:
                    await asyncio.sleep(self._config.poll_s)
                    progress = await self._call("GET", path)
            return _outcome(progress)
        except TimeoutError:
            await self._cancel(path)
            return Outcome(status=OutcomeStatus.AGENT_LIMIT, detail="the deadline has passed")
        except asyncio.CancelledError:
            await self._cancel(path)
            raise
        except Unplayable as error:
            return Outcome(status=OutcomeStatus.ENV_ERROR, detail=str(error))

    def _assignment(self, lease: Lease) -> Assignment:
        return Assignment(
            protocol=1,
            rollout_id=lease.rollout_id,
            task_id=lease.task_id,
            task=lease.input,
            task_hash=hash_of(lease.input),
            seed=seed_of(lease.rollout_id),
            policy=PolicyAccess(
                base_url=lease.base_url, api_key=lease.model_key, model=lease.model
            ),
            deadline=lease.deadline,
            lease_s=self._config.lease_s,
        )

    async def _call(self, method: str, path: str, body: bytes = b"") -> Progress:
        """A call until it is answered: every route may be repeated.

        Raises `Unplayable` if it is refused, or if there is no answer for `unreachable_s`.
        """
        until = time.monotonic() + self._config.unreachable_s
        for pause in pauses(self._config.retry_s, self._config.retry_max_s):
            why, wait = await self._try(method, path, body)
            if isinstance(why, Progress):
                return why
            pause = max(pause, wait)
            if why == _FULL:  # it is there; the deadline is bound enough
                until = time.monotonic() + self._config.unreachable_s + pause
            if time.monotonic() + pause > until:
                raise Unplayable(f"the customer's server cannot be reached: {why}")
            log.warning("%s %s: %s, trying again", method, path, why)
            await asyncio.sleep(pause)
        raise AssertionError("pauses never end")

    async def _try(self, method: str, path: str, body: bytes) -> tuple[Progress | str, float]:
        """Progress, or why there is none yet and how long to wait at least, in seconds."""
        headers = sign(self._key, method, path, body)
        try:
            answer = await self._egress.call(
                method, path, {**headers, "content-type": "application/json"}, body
            )
        except httpx.TransportError as error:
            return str(error) or type(error).__name__, 0.0
        except EgressRefused as error:
            raise Unplayable(str(error)) from error
        if answer.status in (408, 425, 429) or answer.status >= 500:
            return f"status {answer.status}", retry_after(answer.headers)
        if answer.status not in (200, 201):
            said = answer.body[:300].decode(errors="replace")
            raise Unplayable(f"the customer's server answered {answer.status} to {path}: {said}")
        try:
            return Progress.model_validate_json(answer.body), 0.0
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "body"
            raise Unplayable(
                f"the answer to {path} does not fit: {where}: {first['msg']}"
            ) from error

    async def _cancel(self, path: str) -> None:
        """Once, and not for long: without polls the lease runs out there anyway."""
        try:
            async with asyncio.timeout(_CANCEL_S):
                await self._try("POST", f"{path}/cancel", b"")
        except (TimeoutError, Unplayable) as error:
            log.warning("%s: not cancelled there (%s)", path, error)


def _outcome(progress: Progress) -> Outcome:
    if progress.outcome is not None:
        return progress.outcome
    why = {
        RolloutState.CANCELLED: "the customer's server cancelled it",
        RolloutState.EXPIRED: "the customer's server was not polled in time",
    }
    expired = progress.state is RolloutState.EXPIRED
    status = OutcomeStatus.INFRA_ERROR if expired else OutcomeStatus.ENV_ERROR
    return Outcome(status=status, detail=why[progress.state])
