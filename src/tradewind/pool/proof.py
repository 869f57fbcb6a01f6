"""Proof that an engine serves a version (promise W5): its bytes, then its arithmetic.

    served()  ──► digests ──► state id equal?     the bytes that are multiplied are the published
    score()   ──► |d logprob| of the probes        and they are multiplied as the trainer does it
                  small for this pool?

An engine that packs its weights cannot give back what it multiplies. Its digests are then those of
what its loader was given, and the second proof has to show what became of them; the pool's report
says which kind was taken.

Two implementations of one model differ in their last digits, so equality is not to be had: fp32
against fp32 by about 1e-5 nats in the mean, 16 bits by 2,000 times that. Each pool therefore
measures its own distance from the trainer on the first version with probes whose bytes it has
proven: its fingerprint. Later versions may differ by `FACTOR` times that and a floor. What is wrong
from the start has no honest fingerprint, so no probe's mean may be above a ceiling.

In 16 bits that depends on the probe. Measured with SmolLM2-135M before training, after
mid-training and after RL: a pool in bf16 is 0.016 to 0.034 from fp32 on text, and 0.054 to 0.071
with half of the rotary base; on random ids 0.045 to 0.16, which says little. So text is what
proves, and random ids, which read the rows of the embedding that no text uses, show only what is
grossly wrong. A trainer of several ranks gives its probes in the bf16 it trains in, and against
those text proves less as well: 0.032 to 0.049 if all is right, 0.051 to 0.074 with half of the
rotary base.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from tradewind.pool.engine import ByteProof, Engine
from tradewind.types import Fingerprint, RefusedWeights, UserError
from tradewind.weights.digest import root
from tradewind.weights.probe import Probe
from tradewind.weights.state import State

CEILING = 0.05
"""Mean |d logprob| in nats above which no pool serves, in fp32."""
PREDICTED_16_BITS, DRAWN_16_BITS = 0.044, 0.3
"""The same for a pool in 16 bits, for probes that the trainer predicts and for those it cannot."""
BOTH_16_BITS = 0.09
"""For predicted ones where the trainer's probes have 16 bits as well."""
PREDICTED = -3.0
"""Mean logprob from which a probe counts as predicted: `weights.probe.TEXT` has -2 before training
and down to -2.7 after it, random ids have -14."""
FACTOR = 4.0
"""Times the fingerprint that a later version may differ."""
MEAN_FLOOR, MAX_FLOOR = 1e-3, 1e-2
"""Nats that mean and largest difference may always have: below them, a difference moves a sampling
probability by 0.1 % and 1 %, which rollouts do not notice."""


class FailedProof(RefusedWeights):
    """The engine does not serve what it was given; it has to get its old tensors back."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What has been compared; `mean` and `largest` are None for a version without probes."""

    bytes: ByteProof
    tokens: int = 0
    mean: float | None = None
    largest: float | None = None
    worst: float = 0.0
    """Mean of the probe that is nearest to its ceiling, or farthest above it."""
    ceiling: float = CEILING
    """What that probe's mean may be."""

    def __str__(self) -> str:
        state = f"state id ({self.bytes})"
        if self.mean is None:
            return f"{state} only: the version has no probes"
        return (
            f"{state} and {self.tokens} probe logprobs "
            f"(mean |d| {self.mean:.1e}, max {self.largest:.1e})"
        )


class Prover:
    """Proves versions of one engine. `fingerprint` is None before the first one with probes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.fingerprint: Fingerprint | None = None

    def prove(self, state: State) -> Proof:
        """The engine serves `state`.

        Raises FailedProof if it does not, Stalled if the engine does not answer.
        """
        kind = self._prove_bytes(state)
        if not state.probes:
            return Proof(kind)
        proof = self._measure(state.probes, kind)
        _hold_to_ceiling(state, proof)
        if self.fingerprint is None:
            self.fingerprint = _fingerprint(state, proof)
        else:
            _compare(state, proof, limits(self.fingerprint))
        return proof

    def _prove_bytes(self, state: State) -> ByteProof:
        """Tensors that the engine never reads are taken from the mirror."""
        served = self._engine.served()
        leaves = {**state.leaves, **served.leaves}
        if root(leaves) != state.state_id:
            odd = sorted(name for name in leaves if leaves[name] != state.leaves.get(name))
            raise FailedProof(
                f"after the swap to version {state.version} the engine serves other tensors",
                value=odd[:3],
                fix="start the pool again, and report this with its log",
            )
        return served.proof

    def _measure(self, probes: Sequence[Probe], kind: ByteProof) -> Proof:
        try:
            scores = self._engine.score([probe.ids for probe in probes])
        except UserError as error:
            raise FailedProof(
                f"the probes of this version cannot be scored ({error.what})",
                value=error.value,
                fix="publish it with probes of the base model's vocabulary",
            ) from error
        assert [len(found) for found in scores] == [len(probe.logprobs) for probe in probes], (
            "the engine scores every id but the first"
        )
        apart = [_apart(found, probe) for found, probe in zip(scores, probes, strict=True)]
        dtype = self._engine.load().dtype
        means = [(_mean(found), ceiling(p, dtype)) for found, p in zip(apart, probes, strict=True)]
        worst, most = max(means, key=lambda pair: pair[0] / pair[1])
        every = list(chain.from_iterable(apart))
        return Proof(kind, len(every), _mean(every), max(every), worst, most)


def ceiling(probe: Probe, dtype: str) -> float:
    """What the mean |d logprob| of a probe may be for a pool whose arithmetic is `dtype`, nats."""
    blurred = [side != "float32" for side in (dtype, probe.dtype)]
    if not any(blurred):
        return CEILING
    if _mean(probe.logprobs) < PREDICTED:
        return DRAWN_16_BITS
    return BOTH_16_BITS if all(blurred) else PREDICTED_16_BITS


def limits(fingerprint: Fingerprint) -> tuple[float, float]:
    """Mean and largest |d logprob| that this pool may have, in nats, below the ceilings."""
    mean = FACTOR * fingerprint.mean + MEAN_FLOOR
    return mean, FACTOR * fingerprint.largest + MAX_FLOOR


def _apart(found: Sequence[float], probe: Probe) -> list[float]:
    """|d logprob| of each token; infinite where the engine found no number."""
    pairs = zip(found, probe.logprobs, strict=True)
    return [abs(ours - theirs) if math.isfinite(ours) else math.inf for ours, theirs in pairs]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _fingerprint(state: State, proof: Proof) -> Fingerprint:
    assert proof.mean is not None and proof.largest is not None
    return Fingerprint(
        version=state.version, tokens=proof.tokens, mean=proof.mean, largest=proof.largest
    )


def _hold_to_ceiling(state: State, proof: Proof) -> None:
    if not proof.worst <= proof.ceiling:
        raise FailedProof(
            f"version {state.version} has the published bytes, but this pool computes other "
            f"logprobs than the trainer: the mean |d| of a probe is above {proof.ceiling:g}",
            value=round(proof.worst, 4),
            fix="compare the pool's config.json and dtype with the trainer's",
        )


def _compare(state: State, proof: Proof, allowed: tuple[float, float]) -> None:
    assert proof.mean is not None and proof.largest is not None
    mean, largest = allowed
    if not (proof.mean <= mean and proof.largest <= largest):
        raise FailedProof(
            f"version {state.version} has the published bytes, but this pool computes other "
            f"logprobs than it used to: mean |d| may be {mean:.1e} and the largest {largest:.1e}",
            value=[round(proof.mean, 6), round(proof.largest, 6)],
            fix="start the pool again; it then measures its numerics anew",
        )
