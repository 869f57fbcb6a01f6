"""Flights: of those who ask for the same at the same time, one goes and all get what it brings."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from tradewind.types.errors import Stalled

T = TypeVar("T")


class Flights:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: dict[str, Future[Any]] = {}

    def once(self, name: str, job: Callable[[], T], deadline_s: float) -> T:
        """What `job` returns or raises, here or where it runs already under this name.

        Raises Stalled if the other one is not back after `deadline_s` seconds.
        """
        with self._lock:
            flight = self._under_way.get(name)
            ours = flight is None
            if flight is None:
                flight = self._under_way[name] = Future()
        if not ours:
            brought: T = self._await(name, flight, deadline_s)
            return brought
        try:
            result = job()
            flight.set_result(result)
        except BaseException as error:  # boundary: whoever waits is told, whatever it is
            flight.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._under_way[name]
        return result

    def _await(self, name: str, flight: Future[T], deadline_s: float) -> T:
        try:
            return flight.result(deadline_s)
        except TimeoutError as error:
            if flight.done():
                raise  # the job itself ran into one
            raise Stalled(name, owner="bucket", seconds=deadline_s) from error
