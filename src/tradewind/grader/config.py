"""Configuration of the grader."""

from __future__ import annotations

from pydantic import Field

from tradewind.rewards.config import RewardConfig


class GraderConfig(RewardConfig):
    """Section `[grader]` of a recipe: the verifier's own fields and these."""

    ledger: str | None = None
    """SQLAlchemy URL or path; None is `ledger.sqlite` in the workspace."""
    parallel: int = Field(default=2, ge=1)
    """Verifications at the same time, each with its own child process."""
    claim_ttl_s: float = Field(default=120.0, gt=0)
    """A claim is held for so long, in seconds; then another grader may take the rollout."""
    attempts: int = Field(default=3, ge=1)
    """How often the verifier may fail on a rollout before its score is null (`grader_error`)."""
    poll_s: float = Field(default=0.1, gt=0)
    """Pause between two looks for finished rollouts, in seconds."""
