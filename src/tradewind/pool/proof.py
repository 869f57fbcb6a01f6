"""Proof that an engine serves a version (promise W5): its bytes, then its arithmetic.

    served()  ──► digests ──► state id equal?     the bytes that are multiplied are the published
    score()   ──► |d logprob| of the probes        and they are multiplied as the trainer does it
                  small for this pool?

An engine that packs its weights cannot give back what it multiplies. Its digests are then those of
what its loader was given, and the second proof has to show what became of them; the pool's report
says which kind was taken.

Two implementations of one model differ in their last digits, so equality is not to be had: fp32
against fp32 by about 1e-5 nats in the mean, bf16 against fp32 by 0.02 on text and 0.05 to 0.06 on
random ids (SmolLM2-135M, three implementations). Each pool therefore measures its own distance from
the trainer on the first version with probes whose bytes it has proven: its fingerprint. Later
versions may differ by `FACTOR` times that and a floor. What is wrong from the start has no honest
fingerprint, so a mean above a ceiling is refused outright. In 16 bits the ceiling depends on the
probes: what the trainer predicts is text. With the text and the random ids of `weights.probe` it
is 0.044, and bf16 has 0.028; with half of the rotary base it has 0.061 (vLLM) and 0.075 (embedded).
Where trainer and pool both compute in 16 bits, both blur: 0.049 was measured after mid-training.
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
PREDICTED_16_BITS, DRAWN_16_BITS = 0.03, 0.09
"""The same in 16-bit arithmetic, for probes that the trainer predicts and for those it cannot."""
PREDICTED = -3.0
"""Mean logprob from which a probe counts as predicted: `weights.probe.TEXT` has -2 before training,
random ids have -14. Text that a policy has forgotten is blurred as random ids are, nearly.
"""
BOTH_16_BITS = 1.5
"""Times that if the trainer's arithmetic has 16 bits as well: two independent errors add up to the
square root of two of one."""
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
        if self.fingerprint is None:
            self._begin(state, proof)
        else:
            _compare(state, proof, limits(self.fingerprint, self._ceiling(state.probes)))
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
        theirs = list(chain.from_iterable(probe.logprobs for probe in probes))
        ours = list(chain.from_iterable(scores))
        assert len(ours) == len(theirs), "the engine scores every id but the first"
        apart = [
            abs(a - b) if math.isfinite(a) else math.inf for a, b in zip(ours, theirs, strict=True)
        ]
        return Proof(kind, len(apart), math.fsum(apart) / len(apart), max(apart))

    def _ceiling(self, probes: Sequence[Probe]) -> float:
        return ceiling(probes, self._engine.load().dtype)

    def _begin(self, state: State, proof: Proof) -> None:
        assert proof.mean is not None and proof.largest is not None
        if not proof.mean <= (allowed := self._ceiling(state.probes)):
            raise FailedProof(
                f"version {state.version} has the published bytes, but this pool computes other "
                f"logprobs than the trainer: mean |d| is above {allowed:.3f}",
                value=round(proof.mean, 4),
                fix="compare the pool's config.json and dtype with the trainer's",
            )
        self.fingerprint = Fingerprint(
            version=state.version, tokens=proof.tokens, mean=proof.mean, largest=proof.largest
        )


def ceiling(probes: Sequence[Probe], dtype: str) -> float:
    """The ceiling of a pool whose arithmetic is `dtype`, in nats: that of each probe, by its
    tokens.
    """
    total, tokens = 0.0, 0
    for probe in probes:
        total += len(probe.logprobs) * _allowed(probe, dtype)
        tokens += len(probe.logprobs)
    return total / tokens


def _allowed(probe: Probe, dtype: str) -> float:
    blurred = [side != "float32" for side in (dtype, probe.dtype)]
    if not any(blurred):
        return CEILING
    predicted = math.fsum(probe.logprobs) / len(probe.logprobs) >= PREDICTED
    once = PREDICTED_16_BITS if predicted else DRAWN_16_BITS
    return once * BOTH_16_BITS if all(blurred) else once


def limits(fingerprint: Fingerprint, most: float = CEILING) -> tuple[float, float]:
    """Mean and largest |d logprob| that this pool may have, in nats."""
    mean = min(most, FACTOR * fingerprint.mean + MEAN_FLOOR)
    return mean, FACTOR * fingerprint.largest + MAX_FLOOR


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
