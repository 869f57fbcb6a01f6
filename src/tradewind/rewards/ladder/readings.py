"""What one signal says of all subjects, how often it agrees with itself, and how long it takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from itertools import zip_longest

from tradewind.rewards.config import SignalConfig
from tradewind.rewards.ladder.options import LadderOptions
from tradewind.rewards.ladder.subject import Subject
from tradewind.rewards.panel import verdict_of
from tradewind.rewards.registry import open_signal
from tradewind.rewards.signal import Kind, Signal, Verdict

Clock = Callable[[], float]


@dataclass
class Readings:
    """One row per subject; a subject that the signal cannot look at has no verdict."""

    config: SignalConfig
    version: str
    kind: Kind
    verdicts: list[Verdict | None] = field(default_factory=list)
    repeats: list[list[float | None]] = field(default_factory=list)
    """Values of the same answer, each scored several times."""
    seconds: list[float] = field(default_factory=list)
    """Of each verdict, but for attacks and repeats."""

    def says(self, at: int) -> bool | None:
        """Whether the value of a subject reaches the signal's bar; None where it is null."""
        verdict = self.verdicts[at]
        if verdict is None or verdict.value is None:
            return None
        return verdict.value >= self.config.bar


def read_all(
    configs: Sequence[SignalConfig],
    subjects: Sequence[Subject],
    options: LadderOptions,
    clock: Clock = time.monotonic,
) -> list[Readings]:
    """The readings of each signal, signals side by side; raises `UserError` as `open_signal`."""
    with ThreadPoolExecutor(max(1, len(configs)), thread_name_prefix="rank") as threads:
        jobs = [threads.submit(_read, c, subjects, options, clock) for c in configs]
        return [job.result() for job in jobs]


def _read(
    config: SignalConfig, subjects: Sequence[Subject], options: LadderOptions, clock: Clock
) -> Readings:
    with closing(open_signal(config)) as signal:
        found = Readings(config, signal.version, signal.kind)
        asked = _asked(config, signal, subjects, options)
        again = set(asked[:: max(1, -(-len(asked) // options.repeated))])
        chosen = set(asked)
        for at, subject in enumerate(subjects):
            if at not in chosen:
                found.verdicts.append(None)
                continue
            began = clock()
            verdict = verdict_of(signal, subject.episode, options.attempts)
            if subject.against is None:
                found.seconds.append(clock() - began)
            found.verdicts.append(verdict)
            if at in again:
                more = [
                    verdict_of(signal, subject.episode, options.attempts)
                    for _ in range(1, options.repeats)
                ]
                if not any(v.evidence.get("cached") for v in more):
                    found.repeats.append([v.value for v in (verdict, *more)])
    return found


def _asked(
    config: SignalConfig, signal: Signal, subjects: Sequence[Subject], options: LadderOptions
) -> list[int]:
    """Positions of the answers that it is asked about: all, or of a judge's some of each making."""
    seen = [at for at, subject in enumerate(subjects) if _looks_at(config, signal, subject)]
    if signal.kind is not Kind.JUDGED or len(seen) <= options.judged:
        return seen
    lanes: dict[str | None, list[int]] = {}
    for at in seen:
        lanes.setdefault(subjects[at].made, []).append(at)
    turns = [at for row in zip_longest(*lanes.values()) for at in row if at is not None]
    return sorted(turns[: options.judged])


def _looks_at(config: SignalConfig, signal: Signal, subject: Subject) -> bool:
    """Not at made answers if it needs turns, nor at attacks on another verifier."""
    if subject.against not in (None, config.use):
        return False
    return bool(subject.episode.turns) or not signal.needs_turns
