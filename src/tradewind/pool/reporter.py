"""The reporter: tells the controller about this pool every second, and what it has proved."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import httpx
from pydantic import ValidationError

from tradewind.http.urls import base_url
from tradewind.pool.engine import Engine
from tradewind.pool.status import PoolStatus
from tradewind.types import PoolOrder, Record

log = logging.getLogger(__name__)

DEADLINE_S = 5.0
"""For one report, in seconds."""


class ReportAnswer(Record):
    """What the controller answers."""

    acknowledged: tuple[int, ...] = ()
    """Versions whose attestations it has stored."""
    stop: bool = False
    """Whether the pool shall end."""
    order: PoolOrder | None = None
    """Where all pools shall go; an alarm sends them back, its end lets them follow again."""


class Reporter:
    """Attestations are repeated until acknowledged; an unreachable controller stops nothing."""

    def __init__(
        self, client: httpx.Client, status: PoolStatus, engine: Engine, on_stop: Callable[[], None]
    ) -> None:
        self._client, self._status, self._engine = client, status, engine
        self._on_stop = on_stop
        self._heeded = 0
        """The newest order that was heeded; none in a process that has just begun."""

    def run(self, stop: threading.Event, every_s: float) -> None:
        """Reports until `stop`, at once when there is news."""
        with self._client:
            while not stop.is_set():
                self._status.news.clear()
                self.report()
                self._status.news.wait(every_s)

    def report(self) -> None:
        """Sends one report."""
        trouble: str | None = None
        try:
            body = self._status.report(self._engine.load()).model_dump_json()
            response = self._client.post("/v1/pools/report", content=body)
            response.raise_for_status()
            answer = ReportAnswer.model_validate_json(response.content)
            self._status.acknowledge(answer.acknowledged)
            self._heed(answer.order)
            if answer.stop:
                log.info("the controller asks this pool to stop")
                self._on_stop()
        except httpx.HTTPStatusError as error:
            said = error.response.text[:200]
            trouble = f"the controller refuses reports ({error.response.status_code}: {said})"
        except (httpx.HTTPError, ValidationError) as error:
            trouble = f"the controller does not answer reports ({type(error).__name__}: {error})"
        self._status.trouble("controller", trouble)

    def _heed(self, order: PoolOrder | None) -> None:
        """Go where the controller says, once for each of its words."""
        if order is None or order.number == self._heeded:
            return
        self._heeded = order.number
        where = "the newest version" if order.version is None else f"version {order.version}"
        log.warning("the controller sends this pool to %s", where)
        self._status.pins(order.version)


def controller_client(url: str, key: str) -> httpx.Client:
    """A client for the controller at `url`; raises `UserError` if that is no URL."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    return httpx.Client(
        base_url=base_url(url, "the controller"), headers=headers, timeout=DEADLINE_S
    )
