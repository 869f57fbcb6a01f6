"""When a signal serves, and for what."""

from __future__ import annotations

from pydantic import Field

from tradewind.types.config import Config


class LadderOptions(Config):
    """Thresholds of `tradewind rewards rank`, printed beside the result."""

    usable: float = Field(default=0.5, ge=0, le=1)
    """Share of the true signal that must be left (phi squared) for a signal to be used."""
    gate_misses: float = Field(default=0.02, ge=0, le=1)
    """A signal with less may still be a gate if it turns down at most this share of what is right:
    it knows what cannot be right, though not what is."""
    determinism: float = Field(default=0.98, ge=0, le=1)
    """Share of pairs of repeats that must agree; for judged signals `judged_determinism`."""
    judged_determinism: float = Field(default=0.9, ge=0, le=1)
    """The same where a model or a person says it."""
    nulls: float = Field(default=0.05, ge=0, le=1)
    """Share of verdicts that may be null."""
    evidence: int = Field(default=20, ge=1)
    """Right and wrong answers with which a signal must have been compared, each."""
    chance: float = Field(default=0.05, ge=0, le=1)
    """An attack has passed if it reaches the bar on more than this share of the tasks that it was
    tried on: a fixed answer is right for one task now and then."""
    resolution: float = Field(default=1e-6, ge=0)
    """Values that differ by no more are the same."""
    repeats: int = Field(default=3, ge=2)
    """How often an answer is scored to see whether the verdicts agree."""
    repeated: int = Field(default=20, ge=1)
    """How many answers are scored so often; each of the others once."""
    judged: int = Field(default=120, ge=1)
    """About how many answers a judge is asked at most, of every making alike: each call costs."""
    attempts: int = Field(default=3, ge=1)
    """How often a signal may fail on an answer before its verdict is null."""
    pass_rate: float | None = Field(default=None, gt=0, lt=1)
    """At which true pass rate the usable signal is computed; None takes the run's, or 0.5."""
