"""Configuration of the grader."""

from __future__ import annotations

from pydantic import Field

from tradewind.rewards.config import Composition
from tradewind.types.config import Config


class ProbeConfig(Config):
    """Section `[grader.probes]`."""

    seed: int = 0
    """Decides which rollouts are probed."""
    truth: dict[str, str] = Field(default_factory=dict)
    """Judged signal -> the deterministic signal that says the truth of the same rollouts; each such
    rollout is a free label. A good role for it is `monitor`: as a closed gate it would keep the
    judge from being asked about what is wrong."""
    canary_every: int = Field(default=8, ge=1)
    """Judged rollouts of a criterion per canary."""
    canary_confirm: int = Field(default=4, ge=0)
    """How often a canary with the wrong verdict is asked again."""
    repeat_items: int = Field(default=20, ge=0)
    """Rollouts of a new judge that are judged three times."""
    repeat_share: float = Field(default=0.02, ge=0, le=1)
    """Share of rollouts after those."""
    anchors: int = Field(default=40, ge=0)
    """So many of a judge's first rollouts are asked again and again."""
    anchor_every: int = Field(default=8, ge=1)
    """Judged rollouts of a criterion per anchor."""
    heldout: dict[str, dict[str, object]] = Field(default_factory=dict)
    """Judged signal -> options of another judge for the same criterion (`url`, `model`, ...); what
    is not named is as in the signal's own options."""
    heldout_share: float = Field(default=0.03, ge=0, le=1)
    """Share of rollouts that the held-out judge sees, too."""


class GraderConfig(Composition):
    """Section `[grader]` of a recipe: the signals of the reward, and who computes them."""

    ledger: str | None = None
    """SQLAlchemy URL or path; None is the workspace's own."""
    parallel: int = Field(default=2, ge=1)
    """Verifications at the same time, each with its own child process."""
    claim_ttl_s: float = Field(default=120.0, gt=0)
    """A claim is held for so long, in seconds; then another grader may take the rollout."""
    attempts: int = Field(default=3, ge=1)
    """How often a signal may fail on a rollout before its score is null (`grader_error`)."""
    judge_again: int = Field(default=3, ge=0)
    """How often a rollout is judged again later if all that it lacks is the verdict of a judge that
    did not answer (`judge_timeout`, `judge_busy`, `judge_away`, `judge_unreachable`,
    `judge_overloaded`, `judge_malformed`); then it is null. Nothing is sampled again for that."""
    judge_again_s: float = Field(default=10.0, gt=0)
    """Pause before the first of these times, in seconds; it doubles."""
    probes: ProbeConfig = Field(default_factory=ProbeConfig)
    """What judges are asked beside the rewards."""
    poll_s: float = Field(default=0.1, gt=0)
    """Pause between two looks for finished rollouts, in seconds."""

    @property
    def composition(self) -> Composition:
        """The signals alone: what the ledger keeps and the version is of."""
        return Composition(signals=self.signals)
