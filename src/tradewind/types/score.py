"""A score: one verdict about one rollout, with its source, or a null with its cause."""

from __future__ import annotations

from pydantic import Field, model_validator

from tradewind.types.ids import RolloutId
from tradewind.types.record import Json, Record


class Score(Record):
    """Example: `Score(rollout_id="g000017-r3", source="rows", source_version="1", value=1.0)`."""

    rollout_id: RolloutId
    source: str
    """Name of the verifier, criterion or judge."""
    source_version: str
    value: float | None
    """None is a null: it leaves loss, mean and spread, and the rollout is refilled."""
    cause: str | None = None
    """Why the value is null, or evidence for people when it is not."""
    evidence: Json = Field(default_factory=dict)
    """Plain data that lets somebody else check the verdict."""
    seconds: float = 0.0

    @model_validator(mode="after")
    def _null_has_a_cause(self) -> Score:
        if self.value is None and not self.cause:
            raise ValueError("a null score needs a cause")
        if self.value is not None and not (-1e6 < self.value < 1e6):
            raise ValueError(f"a score must be finite, got {self.value}")
        return self
