"""One finished rollout to its scores."""

from __future__ import annotations

import time
from collections.abc import Callable

from tradewind.grader.panel import Panel
from tradewind.ledger.scores import FinishedRollout
from tradewind.rewards.config import Role, SignalConfig
from tradewind.rewards.signal import Signal, Verdict, VerifierFailed
from tradewind.types.episode import Episode
from tradewind.types.score import Score
from tradewind.types.turn import Turn

Clock = Callable[[], float]


def grade(
    finished: FinishedRollout,
    panel: Panel,
    attempts: int,
    turns: tuple[Turn, ...] = (),
    clock: Clock = time.monotonic,
) -> list[Score]:
    """A score of each signal; never raises for anything that a rollout or a signal can do.

    Only what the policy cannot have caused is null, with its cause (promise R4): the
    environment's or platform's failure as reported, and `grader_error` when a signal fails
    `attempts` times, or when graders have died on this rollout so often. Once a gate is closed no
    judge is asked: the reward is decided, and a judge costs.
    """
    episode = episode_of(finished, turns)
    scores, closed = [], False
    for config, signal in panel.signals:
        if closed and config.judged:
            continue
        began = clock()
        verdict = _verdict(finished, episode, signal, attempts)
        closed = closed or _closes(config, verdict)
        scores.append(
            Score(
                rollout_id=finished.rollout_id,
                source=config.name,
                source_version=signal.version,
                value=verdict.value,
                cause=verdict.cause,
                evidence=verdict.evidence,
                seconds=clock() - began,
            )
        )
    return scores


def episode_of(finished: FinishedRollout, turns: tuple[Turn, ...]) -> Episode:
    """What signals may look at."""
    return Episode(
        rollout_id=finished.rollout_id, task=finished.task, outcome=finished.outcome, turns=turns
    )


def _closes(config: SignalConfig, verdict: Verdict) -> bool:
    return config.role is Role.GATE and verdict.value is not None and verdict.value < config.bar


def _verdict(finished: FinishedRollout, episode: Episode, signal: Signal, attempts: int) -> Verdict:
    outcome = finished.outcome
    if not outcome.status.gradable:
        return Verdict(value=None, cause=f"{outcome.status}: {outcome.detail or 'no detail given'}")
    if finished.claims > attempts:
        died = finished.claims - 1
        return Verdict(value=None, cause=f"grader_error: {died} graders ended while grading it")
    failures = []
    for _ in range(attempts):
        try:
            return signal.score(episode)
        except VerifierFailed as error:
            failures.append(str(error))
    return Verdict(value=None, cause=f"grader_error: failed {attempts} times, {failures[-1]}")
