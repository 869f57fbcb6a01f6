"""Rollouts that lack nothing but the verdict of a judge that did not answer.

A null would have the whole rollout played again, and its inference paid twice. So it is put back
among the finished ones and judged again a little later, a few times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tradewind.rewards.compose import is_null
from tradewind.rewards.config import Composition
from tradewind.rewards.judges.failure import NULL_CLASS, SPARED_S, FailureKind
from tradewind.types.score import Score

GIVEN = 1.0
"""Stands for the verdicts to come: it opens gates, so that nothing else is excused by them."""


def waits_for(
    composition: Composition, scores: Sequence[Score], trust: Mapping[str, float]
) -> list[Score]:
    """The nulls of judges that may answer later, if with their verdicts there were a reward.

    Empty if there is a reward already, as without a judge that has no trust, or would be none
    either way.
    """
    judged = {signal.name for signal in composition.signals if signal.judged}
    silent = [score for score in scores if score.source in judged and _passes(score)]
    if not silent or not is_null(composition, scores, trust):
        return []
    sources = {score.source for score in silent}
    hoped = [s.model_copy(update={"value": GIVEN}) if s.source in sources else s for s in scores]
    return [] if is_null(composition, hoped, trust) else silent


def pause_s(first_s: float, put_off: int, missing: Sequence[Score]) -> float:
    """Seconds until the next try of a rollout that was put off so many times before.

    A judge that was not asked, since it answers nobody, gets the time that asking would have taken:
    the rollout waits for its return as long as ever, but in no slot.
    """
    spared = max((float(score.evidence.get(SPARED_S, 0.0)) for score in missing), default=0.0)
    return first_s * 2.0**put_off + spared


def _passes(score: Score) -> bool:
    kind = score.evidence.get(NULL_CLASS)
    return score.value is None and kind is not None and FailureKind(kind).passing
