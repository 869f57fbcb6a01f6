"""Every judge's standing brought up to date: evidence in, a standing out."""

from __future__ import annotations

from tradewind.ledger.ledger import Ledger
from tradewind.ledger.trust import Judge
from tradewind.rewards.criteria.criterion import MINIMUM
from tradewind.rewards.trust.config import TrustConfig
from tradewind.rewards.trust.decision import begin, decide
from tradewind.rewards.trust.reading import read_evidence
from tradewind.types.trust import Standing, TrustState


def update_standings(ledger: Ledger, config: TrustConfig, now: float) -> list[Standing]:
    """Decide anew about each judge; those whose state changed, as they are now."""
    decided = [_decided_now(ledger, judge, config, now) for judge in ledger.judges()]
    return [standing for standing in decided if ledger.record_standing(standing)]


def _decided_now(ledger: Ledger, judge: Judge, config: TrustConfig, now: float) -> Standing:
    """What the evidence says now; nothing is written."""
    before = ledger.standing(judge.signal, judge.version) or begin(judge.signal, judge.version, now)
    evidence = read_evidence(ledger, judge)
    return _bounded(decide(before, evidence, config, now), judge.minimum)


def _bounded(standing: Standing, minimum: TrustState) -> Standing:
    """No weight below the state that the criterion's author asks for."""
    if standing.state not in MINIMUM or MINIMUM.index(standing.state) >= MINIMUM.index(minimum):
        return standing
    why = f"the criterion asks for a judge that is {minimum}"
    return standing.model_copy(update={"factor": 0.0, "reasons": (*standing.reasons, why)})
