"""Every judge's standing brought up to date: evidence in, a standing out."""

from __future__ import annotations

from collections.abc import Sequence

from tradewind.ledger.ledger import Ledger
from tradewind.ledger.trust import Judge
from tradewind.rewards.trust.config import TrustConfig
from tradewind.rewards.trust.decision import begin, decide
from tradewind.rewards.trust.reading import read_evidence
from tradewind.types.trust import Standing, TrustState


def update_standings(ledger: Ledger, config: TrustConfig, now: float) -> list[Standing]:
    """Decide anew about each judge; those whose state changed, as they are now."""
    return [new for new, changed in _decided(ledger, ledger.judges(), config, now) if changed]


def current_standing(ledger: Ledger, judge: Judge, config: TrustConfig, now: float) -> Standing:
    """What would be decided now; nothing is written."""
    before = ledger.standing(judge.signal, judge.version) or begin(judge.signal, judge.version, now)
    evidence = read_evidence(ledger, judge)
    return _bounded(decide(before, evidence, config, now), judge.minimum)


def _decided(
    ledger: Ledger, judges: Sequence[Judge], config: TrustConfig, now: float
) -> list[tuple[Standing, bool]]:
    found = []
    for judge in judges:
        standing = current_standing(ledger, judge, config, now)
        found.append((standing, ledger.record_standing(standing)))
    return found


def _bounded(standing: Standing, minimum: TrustState) -> Standing:
    """No weight below the state that the criterion's author asks for."""
    order = (TrustState.UNCALIBRATED, TrustState.PROBATION, TrustState.TRUSTED)
    if standing.state not in order or order.index(standing.state) >= order.index(minimum):
        return standing
    why = f"the criterion asks for a judge that is {minimum}"
    return standing.model_copy(update={"factor": 0.0, "reasons": (*standing.reasons, why)})
