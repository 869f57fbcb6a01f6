"""The open signals of one composition, and what they say of one episode."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from tradewind.ledger.payloads import LostPayload
from tradewind.rewards.config import Composition, Role, SignalConfig
from tradewind.rewards.judges.signal import JudgeSignal
from tradewind.rewards.registry import check_tasks, open_signal
from tradewind.rewards.signal import Signal, Verdict, VerifierFailed
from tradewind.types.episode import Episode
from tradewind.types.errors import UserError
from tradewind.types.ids import RolloutId
from tradewind.types.outcome import OutcomeStatus
from tradewind.types.score import Score
from tradewind.types.task import Task
from tradewind.types.turn import Turn

Clock = Callable[[], float]
ReadTurns = Callable[[RolloutId], Sequence[Turn]]
"""`Ledger.turns`."""

log = logging.getLogger(__name__)

ATTEMPTS = 3
"""How often a signal may fail on an episode before its score is null."""


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
            (config, signal) for config, signal in self.signals if isinstance(signal, JudgeSignal)
        ]

    def check(self, tasks: Iterable[Task]) -> int:
        """How many tasks there are; raises `UserError` if a signal cannot score one of them."""
        known = list(tasks)
        for _, signal in self.signals:
            check_tasks(signal, known)
        return len(known)

    def score(
        self, episode: Episode, attempts: int = ATTEMPTS, clock: Clock = time.monotonic
    ) -> list[Score]:
        """A score of each signal; never raises for anything that an episode or a signal can do.

        Only what the policy cannot have caused is null, with its cause (promise R4): the
        environment's or platform's failure as reported, and `grader_error` when a signal fails
        `attempts` times. Once a gate that is not judged is closed no judge is asked: the reward
        is decided, and a judge costs. Judges are asked at the same time.
        """
        if (cause := _beyond_grading(episode)) is not None:
            return self.nulls(episode.rollout_id, cause)
        scores, closed = [], False
        for config, signal in self.signals:
            if config.judged:
                continue
            scores.append(_score(config, signal, episode, attempts, clock))
            closed = closed or _closes(config, scores[-1])
        judged = [] if closed else [pair for pair in self.signals if pair[0].judged]
        if not judged:
            return scores
        with ThreadPoolExecutor(len(judged), thread_name_prefix="judge") as threads:
            asked = [threads.submit(_score, *pair, episode, attempts, clock) for pair in judged]
            return [*scores, *(one.result() for one in asked)]

    def read(self, read_turns: ReadTurns, rollout: RolloutId) -> tuple[Turn, ...]:
        """The turns that its signals look at, none if they look at none; raises `LostPayload`."""
        return tuple(read_turns(rollout)) if self.needs_turns else ()

    def lost(self, rollout: RolloutId, error: LostPayload) -> list[Score]:
        """Nulls where those turns are lost: the platform's failure, nobody else's."""
        return self.nulls(rollout, f"{OutcomeStatus.INFRA_ERROR}: {error}")

    def nulls(self, rollout: RolloutId, cause: str) -> list[Score]:
        """A null of each signal, where none can be asked."""
        return [
            Score(
                rollout_id=rollout,
                source=config.name,
                source_version=signal.version,
                value=None,
                cause=cause,
            )
            for config, signal in self.signals
        ]

    def close(self) -> None:
        """End every child process."""
        for _, signal in self.signals:
            signal.close()


def _score(
    config: SignalConfig, signal: Signal, episode: Episode, attempts: int, clock: Clock
) -> Score:
    began = clock()
    verdict = verdict_of(signal, episode, attempts)
    return Score(
        rollout_id=episode.rollout_id,
        source=config.name,
        source_version=signal.version,
        value=verdict.value,
        cause=verdict.cause,
        evidence=verdict.evidence,
        seconds=clock() - began,
    )


def _closes(config: SignalConfig, score: Score) -> bool:
    return config.role is Role.GATE and score.value is not None and score.value < config.bar


def verdict_of(signal: Signal, episode: Episode, attempts: int = ATTEMPTS) -> Verdict:
    """What a signal says of an episode: null if it fails `attempts` times, or nobody can say."""
    if (why := _beyond_grading(episode)) is not None:
        return Verdict(value=None, cause=why)
    for _ in range(attempts):
        try:
            return signal.score(episode)
        except VerifierFailed as error:
            why = str(error)
        except Exception as error:  # boundary: one rollout never ends the grader
            log.exception("the signal failed on %s", episode.rollout_id)
            why = f"{type(error).__name__}: {error}"
    return Verdict(value=None, cause=f"grader_error: failed {attempts} times, {why}")


def _beyond_grading(episode: Episode) -> str | None:
    """What the environment or the platform did to it; None if it can be graded."""
    outcome = episode.outcome
    if outcome.status.gradable:
        return None
    return f"{outcome.status}: {outcome.detail or 'no detail given'}"


def _turn(config: SignalConfig) -> tuple[bool, bool]:
    """Judges last, gates first: what is cheap and sure may make the rest unnecessary."""
    return config.judged, config.role is not Role.GATE
