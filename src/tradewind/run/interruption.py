"""Ctrl-C and SIGTERM, in a way that cannot get lost.

A handler that only raises is not enough: Python drops an exception that is raised inside a
destructor or a weak reference's callback. So the wish is kept too, and loops ask for it.
"""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any


class Interruption:
    """A context in which SIGINT and SIGTERM raise KeyboardInterrupt, and are remembered."""

    def __init__(self) -> None:
        self._asked = False
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruption:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raise KeyboardInterrupt if it was asked for and got lost."""
        if self._asked:
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._asked:  # a second signal must not break the clean end that the first began
            self._asked = True
            raise KeyboardInterrupt
