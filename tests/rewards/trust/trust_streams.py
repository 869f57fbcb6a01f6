"""Made-up evidence: judges of known quality, and what was seen of them."""

from __future__ import annotations

import random
from collections.abc import Callable

from tradewind.rewards.trust.config import TrustConfig
from tradewind.rewards.trust.decision import begin
from tradewind.rewards.trust.evidence import Evidence, HeldoutPair, LabelledVerdict
from tradewind.types.trust import LabelSource, Probe, ProbeKind, Sampling, Standing, TrustState

CONFIG = TrustConfig()
Wrong = Callable[[bool, dict[str, float], int], float]
"""(truth, features, number) -> probability of a wrong verdict."""


def honest(truth: bool, features: dict[str, float], number: int) -> float:
    return 0.05


def labels(
    n: int,
    wrong: Wrong = honest,
    *,
    seed: int = 1,
    base: float = 0.5,
    start: float = 0.0,
    source: LabelSource = LabelSource.VERIFIER,
    sampling: Sampling = Sampling.RANDOM,
    raters: tuple[str, ...] = ("ana",),
) -> list[LabelledVerdict]:
    """One second apart, from `start` on."""
    rng = random.Random(seed)
    found = []
    for number in range(n):
        truth = rng.random() < base
        features = {"length": rng.uniform(20, 400), "version": float(number // 20)}
        judged = truth != (rng.random() < wrong(truth, features, number))
        for rater in raters:
            found.append(
                LabelledVerdict(
                    item=f"i{seed}-{number}",
                    task=f"t{number % 20}",
                    judged=float(judged),
                    label=float(truth),
                    source=source,
                    at=start + number,
                    rater=rater,
                    sampling=sampling,
                    features=features,
                )
            )
    return found


def canary(name: str, *values: float, at: float = 1.0, expected: float = 0.0) -> Probe:
    return Probe(
        kind=ProbeKind.CANARY,
        name=name,
        signal="c",
        version="1",
        values=values,
        expected=expected,
        at=at,
    )


def repeats(n: int = 20, flipped: int = 0, at: float = 1.0) -> list[Probe]:
    """`n` items three times; in `flipped` of them one call differs."""
    return [
        Probe(
            kind=ProbeKind.REPEAT,
            name=f"r{number}",
            signal="c",
            version="1",
            values=(1.0, 1.0, 0.0 if number < flipped else 1.0),
            at=at,
        )
        for number in range(n)
    ]


def anchor(number: int, expected: float, value: float, at: float = 1.0) -> Probe:
    return Probe(
        kind=ProbeKind.ANCHOR,
        name=f"a{number}",
        signal="c",
        version="1",
        values=(value,),
        expected=expected,
        at=at,
    )


def sound(at: float = 1.0) -> list[Probe]:
    """What a judge without faults shows."""
    clean = [canary(name, 0.0, at=at) for name in ("empty", "master_key:Solution:", "injection")]
    return [*clean, *repeats(at=at)]


def pairs(n: int, rise: float, *, seed: int = 3) -> list[HeldoutPair]:
    """The training judge's mean rises by `rise` over the held-out one's after the first third."""
    rng = random.Random(seed)
    found = []
    for number in range(n):
        heldout = float(rng.random() < 0.4)
        more = rise if number >= n // 3 else 0.0
        judged = 1.0 if rng.random() < more else heldout
        found.append(HeldoutPair(f"t{number % 30}", judged, heldout, float(number)))
    return found


def standing(state: TrustState, *, at: float = 0.0, quarantines: int = 0) -> Standing:
    before = begin("c", "1", at)
    return before.model_copy(update={"state": state, "quarantines": quarantines})


def good_evidence(n: int = 300) -> Evidence:
    return Evidence(labels=labels(n), probes=sound())
