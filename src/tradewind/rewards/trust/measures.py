"""The evidence in numbers, as they are printed and kept beside a decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tradewind.rewards.trust.config import TrustConfig
from tradewind.rewards.trust.evidence import YES, Evidence, LabelledVerdict, confusion_of
from tradewind.rewards.trust.statistics import (
    Confusion,
    brier,
    cohen_kappa,
    expected_calibration_error,
    gwet_ac1,
    krippendorff_alpha,
    repeat_agreement,
    usable_signal,
    wilson_lower,
)
from tradewind.types.record import Json
from tradewind.types.trust import LabelSource, ProbeKind, Sampling


@dataclass(frozen=True)
class Agreement:
    """A judge against one source of labels, on the newest random sample."""

    source: LabelSource
    counts: Confusion
    """Of the newest labels with yes and the newest with no."""
    base_rate: float
    """Share of yes among the newest labels; kappa and all that follow are of these, too."""
    accuracy: float
    """Share of equal verdicts; a constant verdict would reach max(base_rate, 1 - base_rate)."""
    sensitivity_bound: float
    """Lower, one-sided."""
    specificity_bound: float
    kappa: float | None
    ac1: float | None
    brier: float | None
    calibration_error: float | None
    usable: float | None
    """phi squared: the share of the reward's signal that the errors leave."""
    usable_bound: float
    """The same if both shares are as low as their bounds."""

    def enough(self, labels: int) -> bool:
        """Whether there are so many labels of each side."""
        return min(self.counts.positives, self.counts.negatives) >= labels

    def reaches(self, bound: float) -> bool:
        """Whether both lower bounds do."""
        return min(self.sensitivity_bound, self.specificity_bound) >= bound


@dataclass(frozen=True)
class Measures:
    """Of one judge on one criterion."""

    agreements: tuple[Agreement, ...]
    """One for each source that has labels."""
    self_agreement: float | None
    repeat_items: int
    canaries: int
    expert_alpha: float | None
    """Between people; None with fewer than two raters of one item."""
    disagreement_labels: int
    """Labels sampled because judges disagreed; in no estimate."""
    verdicts: int
    nulls: int

    def of(self, source: LabelSource) -> Agreement | None:
        """The agreement with one source, if it has labels."""
        return next((a for a in self.agreements if a.source is source), None)

    def as_json(self) -> Json:
        """Plain data, rounded to four digits, for the ledger."""
        return {
            "agreement": {str(a.source): _agreement_json(a) for a in self.agreements},
            "self_agreement": _rounded(self.self_agreement),
            "repeat_items": self.repeat_items,
            "canaries": self.canaries,
            "expert_alpha": _rounded(self.expert_alpha),
            "disagreement_labels": self.disagreement_labels,
            "verdicts": self.verdicts,
            "nulls": self.nulls,
        }


def measure(evidence: Evidence, config: TrustConfig) -> Measures:
    """Everything that a decision or a table needs."""
    repeats = [p.values for p in evidence.of_kind(ProbeKind.REPEAT) if len(p.values) >= 2]
    asked = evidence.asked[-config.window :]
    return Measures(
        agreements=tuple(
            _agreement(source, evidence, config)
            for source in LabelSource
            if evidence.stream(source)
        ),
        self_agreement=repeat_agreement([[v >= YES for v in values] for values in repeats]),
        repeat_items=len(repeats),
        canaries=len(evidence.of_kind(ProbeKind.CANARY)),
        expert_alpha=_expert_alpha(evidence.labels),
        disagreement_labels=sum(x.sampling is Sampling.DISAGREEMENT for x in evidence.labels),
        verdicts=len(asked),
        nulls=sum(null for _, null in asked),
    )


def _agreement(source: LabelSource, evidence: Evidence, config: TrustConfig) -> Agreement:
    counts = confusion_of(evidence.sides(source, config.window))
    labels = evidence.stream(source)[-config.window :]
    base_rate = sum(x.label >= YES for x in labels) / len(labels)
    judged = [x.judged >= YES for x in labels]
    truth = [x.label >= YES for x in labels]
    values = [min(1.0, max(0.0, x.judged)) for x in labels]
    usable = None
    if counts.sensitivity is not None and counts.specificity is not None:
        usable = usable_signal(base_rate, 1 - counts.specificity, 1 - counts.sensitivity)
    sensitivity = wilson_lower(counts.true_yes, counts.positives, config.level)
    specificity = wilson_lower(counts.true_no, counts.negatives, config.level)
    return Agreement(
        source=source,
        counts=counts,
        base_rate=base_rate,
        accuracy=sum(not x.wrong for x in labels) / len(labels),
        sensitivity_bound=sensitivity,
        specificity_bound=specificity,
        kappa=cohen_kappa(judged, truth),
        ac1=gwet_ac1(judged, truth),
        brier=brier(values, truth),
        calibration_error=expected_calibration_error(values, truth),
        usable=usable,
        usable_bound=usable_signal(base_rate, 1 - specificity, 1 - sensitivity),
    )


def _expert_alpha(labels: Sequence[LabelledVerdict]) -> float | None:
    people = [x for x in labels if x.source is LabelSource.PERSON]
    items = list(dict.fromkeys(x.item for x in people))
    raters = dict.fromkeys(x.rater for x in people)
    given = {(x.rater, x.item): x.label >= YES for x in people}
    return krippendorff_alpha([[given.get((rater, item)) for item in items] for rater in raters])


def _agreement_json(agreement: Agreement) -> Json:
    counts = agreement.counts
    return {
        "labels": counts.n,
        "positives": counts.positives,
        "negatives": counts.negatives,
        "base_rate": _rounded(agreement.base_rate),
        "accuracy": _rounded(agreement.accuracy),
        "constant_accuracy": _rounded(max(agreement.base_rate, 1 - agreement.base_rate)),
        "sensitivity": _rounded(counts.sensitivity),
        "specificity": _rounded(counts.specificity),
        "sensitivity_bound": _rounded(agreement.sensitivity_bound),
        "specificity_bound": _rounded(agreement.specificity_bound),
        "kappa": _rounded(agreement.kappa),
        "ac1": _rounded(agreement.ac1),
        "brier": _rounded(agreement.brier),
        "calibration_error": _rounded(agreement.calibration_error),
        "usable_signal": _rounded(agreement.usable),
        "usable_bound": _rounded(agreement.usable_bound),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
