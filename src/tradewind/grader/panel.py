"""The open signals of one composition, for one thread of the grader."""

from __future__ import annotations

from collections.abc import Iterable

from tradewind.rewards.config import Composition, Role, SignalConfig
from tradewind.rewards.judges.signal import JudgeSignal
from tradewind.rewards.registry import check_tasks, open_signal
from tradewind.rewards.signal import Kind, Signal
from tradewind.types.errors import UserError
from tradewind.types.task import Task


class Panel:
    """Not thread-safe, like the signals it holds."""

    def __init__(self, composition: Composition) -> None:
        """Opens every signal; raises `UserError` if one cannot be, then none stays open."""
        self.composition = composition
        self.signals: list[tuple[SignalConfig, Signal]] = []
        try:
            for config in sorted(composition.signals, key=_turn):
                self.signals.append((config, open_signal(config)))
        except UserError:
            self.close()
            raise

    @property
    def needs_turns(self) -> bool:
        """Whether a signal looks at the captured turns."""
        return any(signal.needs_turns for _, signal in self.signals)

    @property
    def judges(self) -> list[tuple[SignalConfig, JudgeSignal]]:
        """The signals that ask a model."""
        return [
            (config, signal)
            for config, signal in self.signals
            if isinstance(signal, JudgeSignal) and signal.kind is Kind.JUDGED
        ]

    def check(self, tasks: Iterable[Task]) -> int:
        """How many tasks there are; raises `UserError` if a signal cannot score one of them."""
        known = list(tasks)
        for _, signal in self.signals:
            check_tasks(signal, known)
        return len(known)

    def close(self) -> None:
        """End every child process."""
        for _, signal in self.signals:
            signal.close()


def _turn(config: SignalConfig) -> tuple[bool, bool]:
    """Judges last, gates first: what is cheap and sure may make the rest unnecessary."""
    return config.judged, config.role is not Role.GATE
