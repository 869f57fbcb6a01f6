"""Which judged rollouts people should label next: some by lot, some where a label tells most.

    all verdicts ──► lot of each ──► lower half, in the order of lots ──► random: estimates
                                └──► upper half, most doubtful first  ──► disagreement: repairs

The lot is a hash of signal and rollout, so the lower half is a uniform sample of everything,
whatever was labelled or asked for before; bounds and PPI use it alone. What was chosen because it
is doubtful comes from the other half, and is kept apart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tradewind.ledger.trust import JudgedRollout
from tradewind.rewards.trust.evidence import YES
from tradewind.types.ids import RolloutId
from tradewind.types.trust import Sampling


@dataclass(frozen=True)
class Wanted:
    """A rollout that somebody should label."""

    rollout_id: RolloutId
    sampling: Sampling
    probability: float | None
    """That a rollout of this stream is in the random sample, the labelled ones and these together;
    None for one that was chosen."""


def wanted(
    judged: Sequence[JudgedRollout],
    labelled: Collection[RolloutId],
    others: Mapping[RolloutId, float],
    *,
    signal: str,
    n: int,
    random_share: float,
) -> list[Wanted]:
    """At most `n` rollouts with a verdict and without a label, in an order that tells nothing.

    `others` are verdicts of a held-out judge on the same rollouts. `random_share` of the `n` are
    drawn by lot; the others have the greatest doubt, and none that has no doubt at all is chosen.
    """
    told = [found for found in judged if found.value is not None]
    lots = {found.rollout_id: _lot(signal, found.rollout_id) for found in told}
    open_ = [found for found in told if found.rollout_id not in labelled]
    by_lot = sorted(
        (f for f in open_ if lots[f.rollout_id] < 0.5), key=lambda f: lots[f.rollout_id]
    )
    drawn = by_lot[: round(random_share * n)]
    doubts = {f.rollout_id: doubt(f, others.get(f.rollout_id)) for f in open_}
    doubtful = [f for f in open_ if lots[f.rollout_id] >= 0.5 and doubts[f.rollout_id] > 0]
    doubtful.sort(key=lambda f: (-doubts[f.rollout_id], lots[f.rollout_id]))
    done = sum(lots[f.rollout_id] < 0.5 for f in told if f.rollout_id in labelled)
    probability = round((done + len(drawn)) / len(told), 4) if told else 0.0
    queue = [Wanted(f.rollout_id, Sampling.RANDOM, probability) for f in drawn]
    chosen = doubtful[: n - len(drawn)]
    queue += [Wanted(f.rollout_id, Sampling.DISAGREEMENT, None) for f in chosen]
    return sorted(queue, key=lambda x: _lot("order", x.rollout_id))


def doubt(found: JudgedRollout, other: float | None) -> float:
    """How much a label would tell, in [0, 1]: 1 where somebody contradicts the judge.

    Otherwise what its own readings or its confidence leave open: 0 for one that is quite sure.
    """
    assert found.value is not None, found
    yes = found.value >= YES
    if any((said >= YES) != yes for said in (found.truth, other) if said is not None):
        return 1.0
    near = 1 - abs(2 * found.value - 1)
    confidence = found.evidence.get("confidence")
    if isinstance(confidence, int | float):
        near = max(near, 1 - abs(2 * min(1.0, max(0.0, confidence)) - 1))
    agreement = found.evidence.get("agreement")
    if isinstance(agreement, int | float):
        near = max(near, 2 * (1 - agreement))
    return min(1.0, near)


def _lot(signal: str, rollout: RolloutId) -> float:
    """Uniform in [0, 1)."""
    digest = hashlib.sha256(f"{signal} {rollout}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
