"""Notices that nothing moves and who has fallen silent; each is said once, and its end too."""

from __future__ import annotations

from tradewind.controller.config import ControllerConfig
from tradewind.controller.facts import Facts
from tradewind.controller.waits import waits
from tradewind.types.beat import Event

PROCESS = "controller"


class StallWatch:
    """Feed it facts; it returns the events to record."""

    def __init__(self, config: ControllerConfig) -> None:
        self._config = config
        self._progress: tuple[object, ...] | None = None
        self._moved_at = 0.0
        self._stalled = False
        self._silent: set[str] = set()

    def observe(self, facts: Facts) -> list[Event]:
        """What is new: a stall or its end, a silent process or its return."""
        return [*self._stall(facts), *self._silence(facts)]

    def stalled_s(self, now: float) -> float:
        """Seconds since the last progress if that is a stall, else 0."""
        return now - self._moved_at if self._stalled else 0.0

    def _stall(self, facts: Facts) -> list[Event]:
        progress = _progress(facts)
        reasons = waits(facts, self._config)
        if progress != self._progress or not reasons or _trainer_works(facts, self._config):
            moved, self._progress, self._moved_at = self._stalled, progress, facts.now
            self._stalled = False
            return [_event(facts, "run.moves", "progress again")] if moved else []
        if self._stalled or facts.now - self._moved_at < self._config.stall_s:
            return []
        self._stalled = True
        detail = f"nothing moved for {facts.now - self._moved_at:.0f} s. " + "; ".join(
            str(reason) for reason in reasons
        )
        return [_event(facts, "run.stalled", detail, reasons[0].owner)]

    def _silence(self, facts: Facts) -> list[Event]:
        config = self._config
        silent = {
            beat.process: facts.now - beat.at
            for beat in facts.beats
            if facts.now - beat.at > config.silent_s
        }
        new = [
            _event(facts, "process.silent", f"{name} was last heard of {seconds:.0f} s ago", name)
            for name, seconds in silent.items()
            if name not in self._silent
        ]
        back = [
            _event(facts, "process.returned", f"{name} is heard of again", name)
            for name in sorted(self._silent - silent.keys())
        ]
        self._silent = set(silent)
        return new + back


def _progress(facts: Facts) -> tuple[object, ...]:
    """Changes exactly when something moves: tokens, verdicts, groups, versions."""
    counts = facts.counts
    return (
        counts.version,
        counts.steps,
        counts.tokens,
        counts.turns,
        counts.rollouts,
        counts.training_groups,
        counts.eval_groups,
        facts.training,
    )


def _trainer_works(facts: Facts, config: ControllerConfig) -> bool:
    """A long step is no stall while there is enough to train on and the trainer is heard of."""
    if facts.closed < config.groups_per_step:
        return False
    return any(
        beat.process == "trainer"
        and beat.waiting_for is None
        and facts.now - beat.at <= config.silent_s
        for beat in facts.beats
    )


def _event(facts: Facts, kind: str, detail: str, subject: str | None = None) -> Event:
    return Event(at=facts.now, process=PROCESS, kind=kind, subject=subject, detail=detail)
