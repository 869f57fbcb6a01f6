"""An episode: all that a signal may look at when it judges a rollout."""

from __future__ import annotations

from tradewind.types.ids import RolloutId
from tradewind.types.outcome import Outcome
from tradewind.types.record import Record
from tradewind.types.task import Task
from tradewind.types.turn import Turn


class Episode(Record):
    """Example: `Episode(rollout_id="g000017-r3", task=task, outcome=outcome)`."""

    rollout_id: RolloutId
    task: Task
    """With its reference: signals stand on the grader's side."""
    outcome: Outcome
    """As the worker reported it; no verdict of the worker is believed."""
    turns: tuple[Turn, ...] = ()
    """The captured calls in the order of arrival; only for signals that ask for them."""
