"""Readings to figures: each signal against labels, made answers and the more verifiable signals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from tradewind.rewards.admission.bench import MUTANT
from tradewind.rewards.ladder.options import LadderOptions
from tradewind.rewards.ladder.readings import Readings
from tradewind.rewards.ladder.rung import Rung
from tradewind.rewards.ladder.subject import RIGHT, Subject, grouped
from tradewind.rewards.signal import Kind
from tradewind.rewards.trust.statistics import (
    Confusion,
    cohen_kappa,
    gwet_ac1,
    repeat_agreement,
    usable_signal,
    wilson,
)
from tradewind.types.record import Json

LADDER = tuple(Kind)
"""Most verifiable first."""
LABELS, MADE = "labels", "made answers"
NO_TRUTH = (Kind.LABEL, Kind.BEHAVIOUR, Kind.MONITOR)
"""Kinds that tell no other signal what is true: people do by their labels, one question each."""


@dataclass(frozen=True)
class PassRates:
    """How often the policy was right, as far as stored rollouts tell."""

    overall: float
    by_kind: Mapping[str, float] = field(default_factory=dict)


def measure(
    readings: Readings,
    others: Sequence[Readings],
    subjects: Sequence[Subject],
    rates: PassRates,
    options: LadderOptions,
) -> Rung:
    """All figures of one signal; the verdict is `judge.py`'s."""
    truth = [_truth(at, subject, readings, others) for at, subject in enumerate(subjects)]
    compared = _compared(readings, subjects, truth, options)
    judged, labels = [c[0] for c in compared], [c[1] for c in compared]
    found = Confusion.of(judged, labels)
    scored = [verdict for verdict in readings.verdicts if verdict is not None]
    causes = [verdict.cause or "" for verdict in scored if verdict.value is None]
    return Rung(
        name=readings.config.name,
        use=readings.config.use,
        role=readings.config.role,
        kind=readings.kind,
        version=readings.version,
        n=len(scored),
        nulls=len(causes),
        null_cause=causes[0] if causes else "",
        determinism=repeat_agreement(readings.repeats),
        compared_with=dict(Counter(source for _, _, source in compared)),
        right=found.positives,
        wrong=found.negatives,
        rate=rates.overall,
        seconds=sum(readings.seconds) / len(readings.seconds) if readings.seconds else None,
        **_cost(readings),
        **_agreement(found, judged, labels),
        **_usable(found, rates),
        **_groups(readings, subjects, truth, options),
        **_attacks(readings, subjects, options),
    )


Truth = tuple[bool, str] | None
"""Whether an answer is right and who says so; None if nobody knows."""


def _truth(at: int, subject: Subject, readings: Readings, others: Sequence[Readings]) -> Truth:
    """People first, then how it was made, then the most verifiable signal above this one.

    People are not held against themselves. Where there is nobody above, a mutant counts as wrong:
    what passes it is too coarse for it.
    """
    people = () if readings.kind is Kind.LABEL else (readings.config.name, "")
    for about in people:
        if (label := subject.said(about)) is not None:
            return label, LABELS
    if subject.truth is not None:
        return subject.truth, MADE
    rank = LADDER.index(readings.kind)
    above = [other for other in others if LADDER.index(other.kind) < rank]
    for other in sorted(above, key=lambda other: LADDER.index(other.kind)):
        if other.kind not in NO_TRUTH and (said := other.says(at)) is not None:
            return said, other.config.name
    return (False, MADE) if subject.made == MUTANT else None


def _compared(
    readings: Readings,
    subjects: Sequence[Subject],
    truth: Sequence[Truth],
    options: LadderOptions,
) -> list[tuple[bool, bool, str]]:
    """Verdict, truth and who says so, for each answer of which both are known.

    Stored rollouts alone, if there are enough of them: what counts is the error on the policy's own
    answers, and made ones are easier to tell apart.
    """
    found, stored = [], []
    for at, known in enumerate(truth):
        said = readings.says(at)
        if said is None or known is None:
            continue
        found.append((said, *known))
        if subjects[at].made is None:
            stored.append((said, *known))
    right = sum(label for _, label, _ in stored)
    enough = min(right, len(stored) - right) >= options.evidence
    return stored if enough else found


def _agreement(found: Confusion, judged: Sequence[bool], labels: Sequence[bool]) -> Json:
    if found.n == 0:
        return {}
    interval = wilson(found.true_yes + found.true_no, found.n)
    return {
        "agreement": found.accuracy,
        "low": interval.low,
        "high": interval.high,
        "kappa": cohen_kappa(judged, labels),
        "ac1": gwet_ac1(judged, labels),
        "base_rate": found.base_rate,
        "false_yes": None if found.specificity is None else 1 - found.specificity,
        "false_no": None if found.sensitivity is None else 1 - found.sensitivity,
    }


def _usable(found: Confusion, rates: PassRates) -> Json:
    if found.specificity is None or found.sensitivity is None:
        return {}
    noise = (1 - found.specificity, 1 - found.sensitivity)
    by_kind = {kind: usable_signal(rate, *noise) for kind, rate in rates.by_kind.items()}
    return {"usable": usable_signal(rates.overall, *noise), "usable_by_kind": by_kind}


def _groups(
    readings: Readings,
    subjects: Sequence[Subject],
    truth: Sequence[Truth],
    options: LadderOptions,
) -> Json:
    """How many groups it tells apart at all, and whether it does so as truth does."""
    wide, n, right, pairs = 0, 0, 0.0, 0
    for members in grouped(subjects):
        verdicts = [(at, v.value) for at in members if (v := readings.verdicts[at]) is not None]
        known = [(at, value) for at, value in verdicts if value is not None]
        if len(known) < 2:
            continue
        n += 1
        values = [value for _, value in known]
        wide += max(values) - min(values) > options.resolution
        for (a, of_a), (b, of_b) in combinations(known, 2):
            true_a, true_b = truth[a], truth[b]
            if true_a is None or true_b is None or true_a[0] == true_b[0]:
                continue
            better, worse = (of_a, of_b) if true_a[0] else (of_b, of_a)
            pairs += 1
            right += 0.5 if abs(better - worse) <= options.resolution else float(better > worse)
    return {
        "groups": n,
        "spread": wide / n if n else None,
        "concordance": right / pairs if pairs else None,
    }


def _attacks(readings: Readings, subjects: Sequence[Subject], options: LadderOptions) -> Json:
    tried: Counter[str] = Counter()
    passed: Counter[str] = Counter()
    for at, subject in enumerate(subjects):
        if subject.made in (None, RIGHT, MUTANT) or (said := readings.says(at)) is None:
            continue
        tried[subject.made or ""] += 1
        passed[subject.made or ""] += said
    fell = {
        name: f"{passed[name]} of {n}"
        for name, n in sorted(tried.items())
        if passed[name] > options.chance * n
    }
    return {"attacks": len(tried), "survived": len(tried) - len(fell), "passed_attacks": fell}


def _cost(readings: Readings) -> Json:
    """Means per score out of the evidence of judges, `usage`; nothing for signals without."""
    found = [v.evidence.get("usage") for v in readings.verdicts if v is not None]
    usages = [usage for usage in found if isinstance(usage, dict)]
    if not usages:
        return {}
    return {
        name: sum(float(usage.get(name, 0)) for usage in usages) / len(usages)
        for name in ("tokens", "usd")
    }
