"""What a judge must show before its verdicts count, and when they stop counting."""

from __future__ import annotations

from pydantic import Field, model_validator

from tradewind.types.config import Config


class TrustConfig(Config):
    """Section `[trust]` of a recipe. Every threshold is printed beside the result it decided.

    "Bound" is always a one-sided confidence bound of `level`, never the observed share.
    """

    off: bool = False
    """Every judge counts fully, whatever is known of it: for comparisons, never for training."""
    level: float = Field(default=0.95, gt=0.5, lt=1)
    """Confidence of bounds that let a judge climb or fall."""
    alarm_level: float = Field(default=0.999, gt=0.5, lt=1)
    """Confidence of what is looked at again and again while a run goes: few false alarms."""
    window: int = Field(default=200, ge=20)
    """How many of the newest labels with yes, and as many with no, are looked at, by source."""
    min_labels: int = Field(default=40, ge=1)
    """Labels with yes, and as many with no, before any bound says anything. After a judge's second
    quarantine it takes twice as many fresh ones to leave it, after the third four times."""
    probation_bound: float = Field(default=0.70, ge=0.5, le=1)
    """Lower bounds of sensitivity and specificity from which a judge gets half of its weight."""
    trusted_bound: float = Field(default=0.80, ge=0.5, le=1)
    """The same for all of its weight."""
    trusted_usable: float = Field(default=0.15, ge=0, le=1)
    """Share of the reward's signal that errors leave at the base rate of the newest labels, if both
    bounds are true, for all of its weight. What is right once in twenty times takes fewer false
    verdicts than what is right every other time."""
    margin: float = Field(default=0.05, ge=0, le=0.3)
    """A state is kept until a bound falls this far below what it took to reach it."""
    probation_factor: float = Field(default=0.5, ge=0, le=1)
    """Factor on the weight while on probation."""
    self_agreement: float = Field(default=0.90, ge=0, le=1)
    """Share of pairs of repeats that must agree before probation."""
    repeat_items: int = Field(default=20, ge=0)
    """Items that are judged several times for that; 0 asks for none."""
    expert_alpha: float = Field(default=0.667, ge=-1, le=1)
    """Krippendorff's alpha between people, below which their labels unlock nothing: the criterion
    goes back to its authors. Not asked where a verifier says the truth."""
    canary_share: float = Field(default=0.3, ge=0, lt=1)
    """A canary with the wrong verdict is asked again (`[grader.probes] canary_confirm`); it has
    failed if the bound of its share of wrong verdicts is above this: four of five are enough."""
    canary_rate: float = Field(default=0.25, ge=0, lt=1)
    """A kind of canary has failed, too, if the alarm's bound of its first calls is above this."""
    canary_window: int = Field(default=50, ge=1)
    """How many of the newest canaries of a kind are looked at."""
    bias: float = Field(default=0.05, ge=0, lt=1)
    """False verdicts may differ by this much between answers that have much and little of a feature
    (length, markdown, words of the criterion, policy version). More, and it is a fault."""
    contradiction: float = Field(default=0.10, ge=0, lt=1)
    """How far errors on the newest labels may rise above those on the labels before them, among
    labels with yes and among labels with no."""
    contradiction_window: int = Field(default=40, ge=10)
    """How many of the newest labels of a side are compared with those before them."""
    null_rate: float = Field(default=0.05, ge=0, lt=1)
    """A judge gives no verdict more often than this: quarantined."""
    anchor_flips: float = Field(default=0.10, ge=0, lt=1)
    """Share of anchors whose verdict changed, beyond the judge's own noise: back to probation."""
    heldout_gap: float = Field(default=0.05, ge=0, lt=1)
    """How much more the training judge's mean may have risen than the held-out judge's."""
    heldout_window: int = Field(default=60, ge=5)
    """Rollouts of one window of that comparison; two windows in a row above it are a fault."""
    seed: int = 0
    """Of the bootstrap over tasks."""

    @model_validator(mode="after")
    def _states_are_in_order(self) -> TrustConfig:
        if self.trusted_bound < self.probation_bound:
            raise ValueError("trusted_bound must not be below probation_bound")
        return self
