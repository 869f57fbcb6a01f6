"""One finished rollout to its score."""

from __future__ import annotations

import time
from collections.abc import Callable

from tradewind.ledger.scores import FinishedRollout
from tradewind.rewards.reward import Reward, Verdict, VerifierFailed
from tradewind.types.score import Score

Clock = Callable[[], float]


def grade(
    finished: FinishedRollout, reward: Reward, attempts: int, clock: Clock = time.monotonic
) -> Score:
    """The score of a finished rollout; never raises for anything a rollout or verifier can do.

    Only what the policy cannot have caused is null, with its cause (promise R4): the
    environment's or platform's failure as reported, and `grader_error` when the verifier fails
    `attempts` times, or when graders have died on this rollout so often.
    """
    began = clock()
    verdict = _verdict(finished, reward, attempts)
    return Score(
        rollout_id=finished.rollout_id,
        source=reward.name,
        source_version=reward.version,
        value=verdict.value,
        cause=verdict.cause,
        seconds=clock() - began,
    )


def _verdict(finished: FinishedRollout, reward: Reward, attempts: int) -> Verdict:
    outcome = finished.outcome
    if not outcome.status.gradable:
        return Verdict(value=None, cause=f"{outcome.status}: {outcome.detail or 'no detail given'}")
    if finished.claims > attempts:
        died = finished.claims - 1
        return Verdict(value=None, cause=f"grader_error: {died} graders ended while grading it")
    failures = []
    for _ in range(attempts):
        try:
            return reward.score(finished.task, outcome)
        except VerifierFailed as error:
            failures.append(str(error))
    return Verdict(value=None, cause=f"grader_error: failed {attempts} times, {failures[-1]}")
