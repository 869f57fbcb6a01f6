"""Leaves an endpoint alone that does not answer, and tries it again now and then.

    closed ── nothing but failures for `patience_s` ──► open ── pause over ──► one call as a probe
      ▲                                                  ▲                          │
      └───────────── an answer, whoever gets it ─────────┼──────────────────────────┤
                                                         └── twice the pause ◄── it fails

Without it an endpoint that hangs would hold a slot of the grader for a whole deadline per verdict.
(pybreaker holds its lock during a call, so that calls would queue up; circuitbreaker lets all calls
through as soon as its pause is over.)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tradewind.rewards.judges.failure import FailureKind, JudgeFailed, TryAgain

LEAST_FAILURES = 3
"""One or two failures tell nothing, however long they took."""
LONGEST = 8
"""A pause grows to so many times the first one."""


@dataclass(frozen=True)
class Away:
    """An endpoint that is left alone."""

    why: str
    """The last failure, in words."""
    open_s: float
    """For so many seconds."""
    next_s: float
    """Until a call is let through; 0 if the next one is."""
    tries: int
    """Calls that were let through meanwhile, in vain."""

    def __str__(self) -> str:
        tried = f"next try in {self.next_s:.0f} s" if self.next_s > 0 else "next try now"
        return f"breaker open for {self.open_s:.0f} s ({self.why}), {tried}"


class Breaker:
    """Thread-safe. `clock` gives seconds that never go back."""

    def __init__(self, patience_s: float, clock: Callable[[], float]) -> None:
        self._patience_s, self._clock = patience_s, clock
        self._guard = threading.Lock()
        self._why, self._failures = "", 0
        self._failing_since = 0.0
        """When the first call in a row of failures began."""
        self._opened: float | None = None
        self._pause, self._until = patience_s, 0.0
        self._probing, self._tries = False, 0

    def away(self) -> Away | None:
        """Since when it is left alone, if it is."""
        with self._guard:
            return self._away()

    def check(self) -> None:
        """Raises `JudgeFailed` while no call is let through."""
        with self._guard:
            self._check()

    @contextmanager
    def call(self) -> Iterator[None]:
        """Around one call, which fails with `TryAgain`; raises `JudgeFailed` as `check`."""
        with self._guard:
            self._check()
            began = self._clock()
            probe = self._probing = self._opened is not None
        failed = None
        try:
            yield
        except TryAgain as error:
            failed = error
            raise
        finally:
            with self._guard:
                if failed is None:
                    self._close()
                else:
                    self._count(failed.failed.why, began, probe=probe)

    def _check(self) -> None:
        away = self._away()
        if away is not None and (self._probing or away.next_s > 0):
            said = str(away) if not self._probing else f"{away}: another call has just begun"
            raise JudgeFailed(FailureKind.AWAY, said)

    def _away(self) -> Away | None:
        if self._opened is None:
            return None
        now = self._clock()
        return Away(self._why, now - self._opened, max(0.0, self._until - now), self._tries)

    def _close(self) -> None:
        self._failures, self._opened = 0, None
        self._probing, self._tries, self._pause = False, 0, self._patience_s

    def _count(self, why: str, began: float, *, probe: bool) -> None:
        now, self._why = self._clock(), why
        if self._opened is None:
            self._failing_since = self._failing_since if self._failures else began
            self._failures += 1
            if self._failures >= LEAST_FAILURES and now - self._failing_since >= self._patience_s:
                self._opened, self._until = now, now + self._pause
        elif probe:  # others began before it opened and tell nothing new
            self._probing, self._tries = False, self._tries + 1
            self._pause = min(2 * self._pause, LONGEST * self._patience_s)
            self._until = now + self._pause
