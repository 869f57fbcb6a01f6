"""Where a judge stands after what was seen: a pure function of the state before and the evidence.

    uncalibrated --> probation --> trusted        by bounds from labels of people or a verifier
         |              |   ^         |
         v              v   |         v            any fault
         +--------> quarantined <-----+
                        |
                        +--> probation            only with a fresh labelled sample

A label of a model moves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from tradewind.rewards.trust.config import TrustConfig
from tradewind.rewards.trust.evidence import Evidence
from tradewind.rewards.trust.faults import (
    COUNTED,
    anchors_moved,
    differentials,
    find_faults,
)
from tradewind.rewards.trust.measures import Agreement, Measures, measure
from tradewind.types.trust import LabelSource, Standing, TrustState


def begin(signal: str, version: str, now: float) -> Standing:
    """The standing of a judge that nobody has seen yet."""
    return Standing(
        signal=signal,
        version=version,
        state=TrustState.UNCALIBRATED,
        factor=0.0,
        reasons=("nothing is known of it yet",),
        at=now,
    )


def decide(before: Standing, evidence: Evidence, config: TrustConfig, now: float) -> Standing:
    """The standing after this evidence; it keeps its `at` as long as the state is the same."""
    fell_at = before.at if before.state is TrustState.QUARANTINED else None
    faults = find_faults(evidence, config, fell_at)
    if fell_at is not None:
        evidence = evidence.since(fell_at)
    measures = measure(evidence, config)
    if faults:
        state, reasons = TrustState.QUARANTINED, [f"{f.name}: {f.sentence}" for f in faults]
    else:
        state, reasons = _without_faults(before, evidence, measures, config)
    names = tuple(str(fault.name) for fault in faults)
    if state is before.state is TrustState.QUARANTINED:
        names = tuple(dict.fromkeys([*before.faults, *names]))
    fell = state is TrustState.QUARANTINED and before.state is not TrustState.QUARANTINED
    return Standing(
        signal=before.signal,
        version=before.version,
        state=state,
        factor=factor_of(state, config),
        reasons=tuple(reasons),
        faults=names,
        measures=measures.as_json(),
        thresholds=config.model_dump(mode="json", exclude={"seed", "off"}),
        quarantines=before.quarantines + int(fell),
        at=before.at if state is before.state else now,
    )


def factor_of(state: TrustState, config: TrustConfig) -> float:
    """The factor on a signal's weight."""
    if state is TrustState.TRUSTED:
        return 1.0
    return config.probation_factor if state is TrustState.PROBATION else 0.0


def _without_faults(
    before: Standing, evidence: Evidence, measures: Measures, config: TrustConfig
) -> tuple[TrustState, list[str]]:
    """The state that the bounds allow, and what is missing for the next one."""
    quarantined = before.state is TrustState.QUARANTINED
    labels = config.min_labels
    if quarantined:
        labels *= 2 ** (before.quarantines - 1)
    kept = before.state in (TrustState.PROBATION, TrustState.TRUSTED)
    probation = config.probation_bound - (config.margin if kept else 0)
    missing = _missing(measures, config, probation, labels)
    if missing and kept:
        # No fault, and labels may have become fewer: what was reached is kept on probation.
        return TrustState.PROBATION, missing
    if missing:
        return before.state, [f"for probation: {sentence}" for sentence in missing]
    if quarantined:
        return TrustState.PROBATION, ["a fresh labelled sample shows no fault"]
    margin = config.margin if before.state is TrustState.TRUSTED else 0
    missing = _missing(measures, config, config.trusted_bound - margin, labels)
    missing += _drowned(measures, config.trusted_usable - margin, labels)
    missing += _doubts(evidence, measures, config)
    if missing:
        return TrustState.PROBATION, [f"for trust: {sentence}" for sentence in missing]
    return TrustState.TRUSTED, ["bounds hold and no error depends on behaviour"]


def _missing(measures: Measures, config: TrustConfig, bound: float, labels: int) -> list[str]:
    """What is missing for both lower bounds to reach `bound`; empty if nothing is."""
    missing = []
    known = [a for source in COUNTED if (a := measures.of(source)) is not None]
    told = [a for a in known if a.enough(labels)]
    if not told:
        missing.append(_labels_wanted(measures, known, labels))
    for a in told:
        if not a.reaches(bound):
            missing.append(
                f"the lower bounds on labels by a {a.source} are {a.sensitivity_bound:.2f} "
                f"(sensitivity) and {a.specificity_bound:.2f} (specificity), {bound:.2f} is asked"
            )
    if measures.repeat_items < config.repeat_items:
        missing.append(f"{measures.repeat_items} of {config.repeat_items} items judged repeatedly")
    elif measures.self_agreement is not None and measures.self_agreement < config.self_agreement:
        missing.append(
            f"it agrees with itself in {measures.self_agreement:.0%} of repeats, "
            f"{config.self_agreement:.0%} is asked"
        )
    if measures.canaries == 0:
        missing.append("no canary has been asked yet")
    return missing


def _drowned(measures: Measures, bound: float, labels: int) -> list[str]:
    """Where the bounds hold, and errors may drown the signal at the base rate that there is."""
    told = [a for s in COUNTED if (a := measures.of(s)) is not None and a.enough(labels)]
    return [
        f"with right answers at {a.base_rate:.0%} its errors may leave as little as "
        f"{a.usable_bound:.0%} of the signal, {bound:.0%} is asked (labels by a {a.source}: kappa "
        f"{_number(a.kappa)}, AC1 {_number(a.ac1)})"
        for a in told
        if a.usable_bound < bound
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _labels_wanted(measures: Measures, known: Sequence[Agreement], labels: int) -> str:
    best = max(known, key=lambda a: min(a.counts.positives, a.counts.negatives), default=None)
    have = "none" if best is None else f"{best.counts.positives} and {best.counts.negatives}"
    words = f"{labels} labels with yes and {labels} with no by people or a verifier (there: {have})"
    models = measures.of(LabelSource.MODEL)
    return words if models is None else f"{words}; {models.counts.n} labels of models do not count"


def _doubts(evidence: Evidence, measures: Measures, config: TrustConfig) -> list[str]:
    """What keeps a judge from full trust although its bounds hold."""
    doubts = []
    if measures.of(LabelSource.VERIFIER) is None:
        alpha = measures.expert_alpha
        if alpha is None:
            doubts.append("two people must have labelled the same items, with both answers")
        elif alpha < config.expert_alpha:
            doubts.append(
                f"people agree with alpha {alpha:.2f}, {config.expert_alpha:.2f} is asked: the "
                f"criterion goes back to its authors"
            )
    for source in COUNTED:
        for found in differentials(evidence.sides(source, config.window), config):
            if found.p < 1 - config.alarm_level and abs(found.size) > config.bias:
                doubts.append(f"errors differ by {found.size:+.0%} with {found.feature}")
    moved = anchors_moved(evidence, config)
    return doubts if moved is None else [*doubts, moved]
