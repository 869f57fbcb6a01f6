"""What is known to be right about a task.

The oracle is artefacts that a perfect agent would have reported. It is looked for in this order:

1. `task.reference["oracle"]`, an object: whoever wrote the taskset says so;
2. the signal's own `oracle(task)`, if it has one: `resultset` reports the reference query.

A task for which neither knows one can still be refused (by guesses, leaks, disagreement, time), but
nothing shows that it can be solved: that is counted and said.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from tradewind.rewards.signal import Signal
from tradewind.types.record import Json
from tradewind.types.task import Task

KEY = "oracle"


@runtime_checkable
class KnowsOracle(Protocol):
    """A signal that can write a perfect answer from a task's reference."""

    def oracle(self, task: Task) -> Json | None:
        """Artefacts; None if this task's reference does not hold them."""


@runtime_checkable
class KnowsResult(Protocol):
    """A signal that can write the bare result down, without the work that leads to it."""

    def result(self, task: Task) -> Json | None:
        """Artefacts; the same ones for two tasks if one fixed answer is right for both."""


def oracle_of(task: Task, signals: Iterable[Signal]) -> Json | None:
    """Artefacts that should reach the maximum; None if nobody knows any."""
    written = task.reference.get(KEY)
    if isinstance(written, dict):
        return written
    for signal in signals:
        if isinstance(signal, KnowsOracle) and (known := signal.oracle(task)) is not None:
            return known
    return None


def result_of(task: Task, signals: Iterable[Signal]) -> Json | None:
    """The bare result: what the signal says, otherwise the oracle itself."""
    known = tuple(signals)
    for signal in known:
        if isinstance(signal, KnowsResult) and (result := signal.result(task)) is not None:
            return result
    return oracle_of(task, known)
