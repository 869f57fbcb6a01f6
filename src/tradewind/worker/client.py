"""The worker's side of the controller's HTTP: dial out, try again, give up with a reason."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid

import httpx

from tradewind.http.connected import Connected
from tradewind.http.retry import pauses, retry_after
from tradewind.http.urls import base_url
from tradewind.types.errors import Conflict, UserError
from tradewind.types.lease import Lease
from tradewind.types.outcome import Outcome
from tradewind.worker.config import WorkerConfig

log = logging.getLogger("worker")

_SLACK_S = 15.0


class ControllerClient(Connected):
    """Requests to one controller. Use as an async context manager. Raises `UserError` if `url` is
    none.
    """

    def __init__(self, url: str, key: str, config: WorkerConfig) -> None:
        self._url = base_url(url, "the controller")
        self._key, self._config = key, config
        self._http = httpx.AsyncClient(
            base_url=self._url,
            timeout=httpx.Timeout(_SLACK_S),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
        )

    async def lease(self) -> Lease | None:
        """A lease, or None if there is none for now.

        Tries again for as long as the controller cannot be reached, with the same id: if the
        answer was lost on the way, it gets the same lease again. Waits when a quota is used up.
        Raises `UserError` if the controller refuses the key or speaks another protocol.
        """
        body = {
            "worker": self._config.name,
            "wait_s": self._config.wait_s,
            "request": uuid.uuid4().hex,
        }
        for pause in pauses(self._config.retry_s, self._config.retry_max_s):
            try:
                answer = await self._post(
                    "/v1/leases", self._key, json=body, timeout=self._config.wait_s + _SLACK_S
                )
            except httpx.TransportError as error:
                log.warning("no answer from %s (%s), trying again", self._url, _what(error))
            else:
                if answer.status_code == 200:
                    return Lease.model_validate_json(answer.content)
                if answer.status_code == 204:
                    return None
                self._refuse(answer)
                log.warning("%s: %s, trying again", self._url, _sentence(answer))
                pause = max(pause, retry_after(answer.headers))
            await asyncio.sleep(pause)
        raise AssertionError("pauses never end")

    async def heartbeat(self, lease: Lease) -> None:
        """Renew a lease; raises `Conflict` if it is lost. A missed one is made up by the next."""
        try:
            answer = await self._post(
                f"/v1/rollouts/{lease.rollout_id}/heartbeat", lease.result_key
            )
        except httpx.TransportError as error:
            log.warning("%s: heartbeat not delivered (%s)", lease.rollout_id, _what(error))
            return
        if answer.status_code in (401, 409):
            raise Conflict(_sentence(answer))

    async def report(self, lease: Lease, outcome: Outcome, within_s: float) -> str:
        """Report an outcome until it is on record; what it counts as.

        Safe to repeat: the controller keeps the first. Raises `Conflict` if it is not accepted
        or could not be delivered within `within_s` seconds.
        """
        body = outcome.model_dump_json()
        until = time.monotonic() + within_s
        for pause in pauses(self._config.retry_s, self._config.retry_max_s):
            try:
                answer = await self._post(
                    f"/v1/rollouts/{lease.rollout_id}/outcome", lease.result_key, content=body
                )
            except httpx.TransportError as error:
                why = _what(error)
            else:
                if answer.status_code == 200:
                    return str(answer.json()["status"])
                if answer.status_code < 500:
                    raise Conflict(_sentence(answer))
                why = f"status {answer.status_code}"
            if time.monotonic() + pause > until:
                raise Conflict(f"not delivered in {within_s:.0f} s ({why})")
            log.warning("%s: outcome not delivered (%s), again", lease.rollout_id, why)
            await asyncio.sleep(pause)
        raise AssertionError("pauses never end")

    async def _post(
        self,
        path: str,
        key: str,
        *,
        json: object = None,
        content: str | None = None,
        timeout: float = _SLACK_S,
    ) -> httpx.Response:
        headers = {"authorization": f"Bearer {key}"}
        return await self._http.post(
            path, headers=headers, json=json, content=content, timeout=timeout
        )

    def _refuse(self, answer: httpx.Response) -> None:
        if answer.status_code == 401:
            raise UserError(
                f"the controller refuses this worker ({_sentence(answer)})",
                value=self._url,
                fix="set TRADEWIND_WORKER_KEY to the worker key that the run's operator gave you",
            )
        if 400 <= answer.status_code < 500 and answer.status_code not in (408, 429):
            raise UserError(
                f"this is no controller we can talk to (status {answer.status_code}, "
                f"{_sentence(answer)})",
                value=self._url,
                fix="check the address after --controller",
            )


def _sentence(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:200] or answer.reason_phrase


def _what(error: Exception) -> str:
    return str(error) or type(error).__name__
