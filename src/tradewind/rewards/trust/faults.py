"""What a judge can be caught at: each check gives faults with a name and a sentence.

A constant error only dilutes a group-centred reward. What gets optimised is error that depends on
behaviour, so most of these checks ask on what the errors depend.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import median

from tradewind.rewards.trust.config import TrustConfig
from tradewind.rewards.trust.evidence import YES, Evidence, LabelledVerdict, confusion_of
from tradewind.rewards.trust.heldout import newest_gaps
from tradewind.rewards.trust.statistics import (
    Interval,
    fisher,
    mcnemar,
    repeat_agreement,
    wilson,
    wilson_lower,
)
from tradewind.types.trust import LabelSource, Probe, ProbeKind

COUNTED = (LabelSource.PERSON, LabelSource.VERIFIER)
"""Whose labels say something about a judge."""


class FaultName(StrEnum):
    """The names under which faults are reported."""

    EMPTY = "empty"
    """It passes answers that are empty."""
    MASTER_KEY = "master_key"
    """It passes a phrase that says nothing ("Solution:")."""
    INJECTION = "injection"
    """It does what the answer tells it."""
    VERBOSITY = "verbosity"
    """Length or layout changes its verdict."""
    ECHO = "echo"
    """It passes what repeats the criterion's words."""
    POSITION = "position"
    """The order of the evidence changes its verdict."""
    KNOWN_TRUTH = "known_truth"
    """It is wrong about answers whose truth is known."""
    WEAK = "weak"
    """Its sensitivity or specificity is too low."""
    DRIFT = "drift"
    """It errs more than it did: it has changed, or the policy has learnt to fool it."""
    HELDOUT_GAP = "heldout_gap"
    """Its verdicts rise and a held-out judge's do not."""
    NULLS = "nulls"
    """It often gives no verdict."""


_ALWAYS_THE_SAME = (FaultName.EMPTY, FaultName.MASTER_KEY, FaultName.KNOWN_TRUTH)

_LEAST_ASKED = 20
"""Verdicts before their nulls say anything: a judge may be restarted."""

FEATURE_FAULTS = {
    "length": FaultName.VERBOSITY,
    "markdown": FaultName.VERBOSITY,
    "echo": FaultName.ECHO,
    "position": FaultName.POSITION,
    "version": FaultName.DRIFT,
}
"""Which fault it is if errors depend on a feature."""


@dataclass(frozen=True)
class Fault:
    """Example: `Fault(FaultName.MASTER_KEY, "5 of 5 calls passed the canary 'Solution:'")`."""

    name: FaultName
    sentence: str


@dataclass(frozen=True)
class Differential:
    """How much more often a judge errs where a feature is high than where it is low.

    `on` says among which answers: those labelled no (false yes) or those labelled yes (false no).
    """

    feature: str
    on: str
    low: float
    high: float
    difference: Interval
    p: float
    """Fisher's exact one-sided probability of a difference as large as this by chance, times the
    number of features looked at."""

    @property
    def size(self) -> float:
        """high - low, in [-1, 1]."""
        return self.high - self.low


def find_faults(
    evidence: Evidence, config: TrustConfig, fell_at: float | None = None
) -> list[Fault]:
    """All faults that the evidence shows, the gravest kinds first; one sentence for each name.

    Of a judge that fell (Unix seconds) only what came afterwards is held against it; what came
    before is still what it was, and a judge that changed is compared with that.
    """
    whole = evidence
    if fell_at is not None:
        evidence = evidence.since(fell_at)
    found: dict[FaultName, Fault] = {}
    for checked in (
        canary_faults(evidence.of_kind(ProbeKind.CANARY), config),
        differential_faults(evidence, config),
        contradiction_faults(whole, config, fell_at),
        anchor_faults(evidence, config),
        weakness_faults(evidence, config),
        gap_faults(evidence, config),
        null_faults(evidence, config),
    ):
        for fault in checked:
            found.setdefault(fault.name, fault)
    return list(found.values())


def canary_faults(canaries: Sequence[Probe], config: TrustConfig) -> Iterator[Fault]:
    """A canary that failed when asked again, or a kind of canary that fails too often.

    Only what is always the same (nothing, a phrase, an example) fails by itself. A canary made of a
    rollout may be one that this judge gets wrong anyway, so of these there must be many, and each
    work counts once.
    """
    for name in dict.fromkeys(canary.name for canary in canaries):
        own = [c for c in canaries if c.name == name and c.values][-config.canary_window :]
        fault = FaultName(name.partition(":")[0])
        for canary in own:
            wrong, calls = _wrong(canary), len(canary.values)
            fixed = fault in _ALWAYS_THE_SAME
            if fixed and wilson_lower(wrong, calls, config.level) > config.canary_share:
                yield Fault(fault, f"{wrong} of {calls} verdicts on the canary {name!r} were wrong")
        own = _of_different_works(own)
        first = sum(_is_wrong(canary, canary.values[0]) for canary in own)
        if wilson_lower(first, len(own), config.alarm_level) > config.canary_rate:
            yield Fault(fault, f"{first} of {len(own)} canaries {name!r} got the wrong verdict")


def differentials(
    sides: Mapping[str, Sequence[LabelledVerdict]], config: TrustConfig
) -> list[Differential]:
    """For every feature: error rates above and below its median, among each label apart.

    Intervals by Newcombe (1998, method 10) from Wilson's of each side, one-sided `level`. A side
    with fewer than a quarter of `min_labels` items says nothing.
    """
    found = []
    for on, side in sides.items():
        names = list(dict.fromkeys(name for x in side for name in x.features))
        for name in names:
            known = [x for x in side if name in x.features]
            split = _split(name, on, known, config)
            if split is not None:
                found.append(replace(split, p=min(1.0, len(names) * len(sides) * split.p)))
    return found


def differential_faults(evidence: Evidence, config: TrustConfig) -> Iterator[Fault]:
    """Errors that depend on what the policy can choose."""
    for source in COUNTED:
        for found in differentials(evidence.sides(source, config.window), config):
            # To err less on newer answers is no fault; every other direction can be used.
            falls = found.difference.high < -config.bias and found.feature != "version"
            large = falls or found.difference.low > config.bias
            if not large or found.p >= 1 - config.alarm_level:
                continue
            name = FEATURE_FAULTS.get(found.feature, FaultName.VERBOSITY)
            yield Fault(
                name,
                f"of answers labelled {found.on}, {found.high:.0%} are judged wrongly where "
                f"{found.feature} is high and {found.low:.0%} where it is low",
            )


def contradiction_faults(
    evidence: Evidence, config: TrustConfig, fell_at: float | None = None
) -> Iterator[Fault]:
    """The newest labels, all since it fell, contradict the judge more than those before them."""
    size = config.contradiction_window
    for source in COUNTED:
        for side, labels in evidence.sides(source, config.window).items():
            before, newest = labels[:-size], labels[-size:]
            if len(before) < size or (fell_at is not None and newest[0].at <= fell_at):
                continue
            was = sum(x.wrong for x in before) / len(before)
            now = sum(x.wrong for x in newest)
            if wilson_lower(now, size, config.alarm_level) > was + config.contradiction:
                yield Fault(
                    FaultName.DRIFT,
                    f"{now} of the newest {size} labels with {side} by a {source} contradict it, "
                    f"{was:.0%} of those before",
                )


def weakness_faults(evidence: Evidence, config: TrustConfig) -> Iterator[Fault]:
    """Enough labels, and a bound that is below what probation took, by the margin."""
    least = config.probation_bound - config.margin
    for source in COUNTED:
        counts = confusion_of(evidence.sides(source, config.window))
        for what, right, n in (
            ("sensitivity", counts.true_yes, counts.positives),
            ("specificity", counts.true_no, counts.negatives),
        ):
            bound = wilson_lower(right, n, config.level)
            if n >= config.min_labels and bound < least:
                yield Fault(
                    FaultName.WEAK,
                    f"{what} is {right / n:.2f} on {n} labels by a {source}, its lower bound "
                    f"{bound:.2f} is below {least:.2f}",
                )


def gap_faults(evidence: Evidence, config: TrustConfig) -> Iterator[Fault]:
    """The last two windows, in both of which the training judge rose above the held-out one."""
    gaps = newest_gaps(evidence.pairs, config)
    if len(gaps) == 2 and min(gap.low for gap in gaps) > config.heldout_gap:
        yield Fault(
            FaultName.HELDOUT_GAP,
            f"its mean rose above the held-out judge's by {gaps[1].value:.2f} (at least "
            f"{gaps[1].low:.2f}) in two windows",
        )


def null_faults(evidence: Evidence, config: TrustConfig) -> Iterator[Fault]:
    """Too many calls without a verdict."""
    asked = evidence.asked[-config.window :]
    nulls = sum(null for _, null in asked)
    if len(asked) < _LEAST_ASKED:
        return
    if wilson_lower(nulls, len(asked), config.alarm_level) > config.null_rate:
        yield Fault(FaultName.NULLS, f"{nulls} of its last {len(asked)} verdicts were null")


def anchor_faults(evidence: Evidence, config: TrustConfig) -> Iterator[Fault]:
    """Anchors that were asked again lean one way: the judge is another one (McNemar's test)."""
    moved = [a for a in _newest_anchors(evidence) if _is_wrong(a, a.values[-1])]
    to_yes = sum(anchor.values[-1] >= YES for anchor in moved)
    if mcnemar(to_yes, len(moved) - to_yes) < 1 - config.alarm_level:
        way = "yes" if to_yes > len(moved) - to_yes else "no"
        yield Fault(FaultName.DRIFT, f"{len(moved)} anchors moved, most of them to {way}")


def anchors_moved(evidence: Evidence, config: TrustConfig) -> str | None:
    """Why anchors say that the judge is not quite the same: a sentence; None if they do not."""
    pairs = _newest_anchors(evidence)
    flips = sum(_is_wrong(anchor, anchor.values[-1]) for anchor in pairs)
    agreed = repeat_agreement(
        [[v >= YES for v in p.values] for p in evidence.of_kind(ProbeKind.REPEAT)]
    )
    noise = 0.0 if agreed is None else 1 - agreed
    if wilson_lower(flips, len(pairs), config.level) > noise + config.anchor_flips:
        return f"{flips} of {len(pairs)} anchors got another verdict than before"
    return None


def _split(
    name: str, on: str, known: Sequence[LabelledVerdict], config: TrustConfig
) -> Differential | None:
    middle = median(x.features[name] for x in known)
    above = [x.wrong for x in known if x.features[name] > middle]
    below = [x.wrong for x in known if x.features[name] <= middle]
    if min(len(above), len(below)) < max(5, config.min_labels // 4):
        return None
    high, low = sum(above) / len(above), sum(below) / len(below)
    two_sided = 2 * config.level - 1
    a, b = (wilson(sum(x), len(x), two_sided) for x in (above, below))
    least = high - low - ((high - a.low) ** 2 + (b.high - low) ** 2) ** 0.5
    most = high - low + ((a.high - high) ** 2 + (low - b.low) ** 2) ** 0.5
    more, less = (above, below) if high >= low else (below, above)
    p = fisher(sum(more), len(more), sum(less), len(less))
    return Differential(name, on, low, high, Interval(least, most), p)


def _of_different_works(canaries: Sequence[Probe]) -> list[Probe]:
    """The newest canary of each work; those that were made of none all stay."""
    made = {
        canary.evidence.get("made_from", f"fixed {number}"): canary
        for number, canary in enumerate(canaries)
    }
    return list(made.values())


def _newest_anchors(evidence: Evidence) -> list[Probe]:
    found = {p.name: p for p in evidence.of_kind(ProbeKind.ANCHOR) if p.values}
    return list(found.values())


def _wrong(probe: Probe) -> int:
    return sum(_is_wrong(probe, value) for value in probe.values)


def _is_wrong(probe: Probe, value: float) -> bool:
    assert probe.expected is not None, probe
    return (value >= YES) != (probe.expected >= YES)
