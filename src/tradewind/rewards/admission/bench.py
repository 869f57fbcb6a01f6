"""Made answers, scored as a worker's report would be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tradewind.rewards.compose import compose_group
from tradewind.rewards.panel import Panel
from tradewind.rewards.registry import fault_of
from tradewind.rewards.signal import VerifierFailed
from tradewind.types.episode import Episode
from tradewind.types.outcome import Outcome, OutcomeStatus
from tradewind.types.record import Json
from tradewind.types.score import Score
from tradewind.types.task import Task

MUTANT = "mutant"
ORACLE = "oracle"
"""Key of a reference that holds one."""


@dataclass(frozen=True)
class Made:
    """A made answer and what it got."""

    reward: float | None
    """None if the verifier failed on it."""
    scores: tuple[Score, ...]


class Bench:
    """Scores made answers of one task with one panel, and keeps count."""

    def __init__(self, task: Task, panel: Panel) -> None:
        self.verdicts, self.slowest_s = 0, 0.0
        self._task, self._panel = task, panel

    def score(self, artefacts: Json, what: str = "made") -> Made:
        """What artefacts get that a worker might have reported."""
        outcome = Outcome(status=OutcomeStatus.COMPLETED, artefacts=artefacts)
        name = f"{self._task.task_id}:{what}"
        scores = self._panel.score(Episode(rollout_id=name, task=self._task, outcome=outcome))
        self.verdicts += len(scores)
        if what != MUTANT:  # an error may well make a program endless
            self.slowest_s = max(self.slowest_s, *(score.seconds for score in scores))
        composed = compose_group(self._panel.composition, [scores], {})
        return Made(composed.rewards[0] if composed.rewards else None, tuple(scores))


def fault_in(task: Task, panel: Panel) -> str | None:
    """Why a signal cannot score the task at all."""
    faults = ((config.name, fault_of(signal, task)) for config, signal in panel.signals)
    return next((f"{name}: {fault}" for name, fault in faults if fault is not None), None)


def known_of(task: Task, panel: Panel) -> tuple[Json | None, Json | None]:
    """Oracle and bare result; None for what nobody knows or could not be worked out.

    The oracle is artefacts that a perfect agent would have reported: `task.reference["oracle"]`,
    since whoever wrote the taskset says so, or what a signal makes of the reference. A task without
    one can still be refused, but nothing shows that it can be solved.
    """
    signals = [signal for _, signal in panel.signals]
    written = task.reference.get(ORACLE)
    try:
        oracle = _first(signal.oracle(task) for signal in signals)
        result = _first(signal.result(task) for signal in signals)
    except VerifierFailed:
        return None, None
    if isinstance(written, dict):
        oracle = written
    return oracle, oracle if result is None else result


def _first(known: Iterable[Json | None]) -> Json | None:
    return next((artefacts for artefacts in known if artefacts is not None), None)
