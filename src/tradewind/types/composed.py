"""What the scores of a group come to: one reward per rollout, and how it was reached."""

from __future__ import annotations

from pydantic import Field, model_validator

from tradewind.types.ids import RolloutId
from tradewind.types.record import Record


class Composed(Record):
    """Example: `Composed(rewards=(1.0, 0.0, None), factors={"tone": 0.5})`.

    Decided for the whole group at once: a signal that leaves the formula leaves it for every
    rollout, or the advantages would compare different formulas.
    """

    rewards: tuple[float | None, ...] = ()
    """One per graded rollout, in the order of their index; None where the rollout is null."""
    factors: dict[str, float] = Field(default_factory=dict)
    """The trust that each judged signal had when the group closed, in [0, 1]."""
    left_out: dict[str, str] = Field(default_factory=dict)
    """Signals that left the formula for this group, and why."""
    resolution: float = 0.0
    """Rewards that differ by no more are the same: if none differ by more, there is no credit."""
    rejected: str | None = None
    """Why the group may not be trained: a tripwire caught a rollout, or no trusted signal is left
    (then there are no rewards)."""

    caught: RolloutId | None = None
    """The rollout that a tripwire caught, if that is the cause."""

    @model_validator(mode="after")
    def _says_something(self) -> Composed:
        assert self.rewards or self.rejected, self
        return self
