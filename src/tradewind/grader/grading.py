"""One finished rollout to its scores."""

from __future__ import annotations

import time

from tradewind.ledger.scores import FinishedRollout
from tradewind.rewards.panel import Clock, Panel
from tradewind.types.episode import Episode
from tradewind.types.score import Score
from tradewind.types.turn import Turn


def grade(
    finished: FinishedRollout,
    panel: Panel,
    attempts: int,
    turns: tuple[Turn, ...] = (),
    clock: Clock = time.monotonic,
) -> list[Score]:
    """A score of each signal, as `Panel.score` says; null if graders have died on this rollout.

    A rollout that was claimed more than `attempts` times ended the graders that tried it.
    """
    episode = episode_of(finished, turns)
    if finished.claims > attempts and finished.outcome.status.gradable:
        died = f"grader_error: {finished.claims - 1} graders ended while grading it"
        return panel.nulls(finished.rollout_id, died)
    return panel.score(episode, attempts, clock)


def episode_of(finished: FinishedRollout, turns: tuple[Turn, ...]) -> Episode:
    """What signals may look at."""
    return Episode(
        rollout_id=finished.rollout_id, task=finished.task, outcome=finished.outcome, turns=turns
    )
