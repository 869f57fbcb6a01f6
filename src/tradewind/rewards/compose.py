"""The formula: the scores of a group to one reward per rollout.

    reward = min(gates * soft, caps) - penalties

    gates      1 if every gate's value reaches its bar, else 0
    soft       (sum of w+ v  -  sum of |w-| v) / sum of w+; clipped to [0, 1] if a weight is
               negative; 1 if there is nothing weighted
    caps       `most` of each cap whose value is below its bar
    penalties  sum of weight * value

Whatever leaves the formula leaves it for the whole group, and the other weights are taken as the
whole: rollouts of one group are compared by one formula, or an advantage would say nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tradewind.rewards.config import Composition, Role, SignalConfig
from tradewind.types.composed import Composed
from tradewind.types.record import Json
from tradewind.types.score import Score

SMALL_SHARE = 0.1
"""A weighted signal with at most this share of all weights may be null without a null reward."""

Scores = Mapping[str, Score]
"""Of one rollout, by source."""


def by_source(scores: Sequence[Score]) -> dict[str, Score]:
    """The scores of one rollout by the name of their signal."""
    return {score.source: score for score in scores}


def compose(
    data: Json | None, graded: Sequence[Sequence[Score]], trust: Mapping[str, float]
) -> Composed:
    """`compose_group` for a composition as a ledger keeps it.

    None is a group that no grader of ours has seen: each rollout has one score, its reward.
    """
    if data is not None:
        return compose_group(Composition.model_validate(data), graded, trust)
    assert all(len(scores) == 1 for scores in graded), f"one score each, found {graded}"
    return Composed(rewards=tuple(scores[0].value for scores in graded))


def is_null(
    composition: Composition, scores: Sequence[Score], trust: Mapping[str, float] | None = None
) -> bool:
    """Whether the rollout has no reward: a null that the formula cannot do without (promise R4).

    A null of a monitor never matters, nor does one of a judge without trust (None: every judge
    counts, as the composition says). That of a weighted signal matters if its share of the weights
    is above `SMALL_SHARE` and no gate has decided already. A score of a source that is no signal (a
    lost lease) is a null of the whole rollout, and so is one of which nothing is known at all.
    """
    found = by_source(scores)
    if found.keys() - {signal.name for signal in composition.signals}:
        return True
    if all(score.value is None for score in scores):
        return True
    factors = _factors(composition, trust)
    counts = [s for s in composition.signals if s.role is not Role.MONITOR and factors[s.name] > 0]
    closed = _closed([s for s in counts if s.role is Role.GATE], found)
    # Once a gate is closed, no judge is asked any more.
    unasked = _closed(composition.with_role(Role.GATE), found)
    shares = {s.name: abs(s.weight) * factors[s.name] for s in counts if s.role is Role.WEIGHTED}
    whole = sum(shares.values())
    for signal in counts:
        score = found.get(signal.name)
        if score is not None and score.value is not None:
            continue
        if score is None and signal.judged and unasked:
            continue
        if signal.role is not Role.WEIGHTED:
            return True
        if not closed and shares[signal.name] > SMALL_SHARE * whole:
            return True
    return False


def compose_group(
    composition: Composition, graded: Sequence[Sequence[Score]], trust: Mapping[str, float]
) -> Composed:
    """The rewards of a group's graded rollouts, in their order.

    `trust` is a factor in [0, 1] for each judged signal; one that is not named has 0: nobody has
    said yet that its judge can be believed.
    """
    known = _factors(composition, trust)
    rollouts = [None if is_null(composition, s, known) else by_source(s) for s in graded]
    factors = {s.name: known[s.name] for s in composition.signals if _is_weighed(s)}
    left_out = {name: "its judge is not trusted" for name, f in factors.items() if f == 0}
    gates = [gate for gate in composition.with_role(Role.GATE) if gate.name not in left_out]
    left_out |= _without_verdict(composition, gates, rollouts)
    signals = [signal for signal in composition.signals if signal.name not in left_out]
    weights = {s.name: s.weight * known[s.name] for s in signals if s.role is Role.WEIGHTED}
    gates = [signal for signal in signals if signal.role is Role.GATE]
    whole = math.fsum(w for w in weights.values() if w > 0)
    if whole == 0:
        left_out |= dict.fromkeys(weights, "no weight above 0 is left that it could take from")
    if whole == 0 and not gates:
        why = "; ".join(f"{name}: {cause}" for name, cause in left_out.items())
        return Composed(factors=factors, left_out=left_out, rejected=f"no signal is left ({why})")
    rewards = tuple(
        None if found is None else _reward(signals, weights if whole else {}, found)
        for found in rollouts
    )
    composed = Composed(
        rewards=rewards,
        factors=factors,
        left_out=left_out,
        resolution=composition.resolution,
    )
    caught = _caught(signals, rollouts)
    if caught is None:
        return composed
    why = f"{caught.source} in {caught.rollout_id}: {caught.cause or 'no cause given'}"
    return composed.model_copy(update={"rejected": why, "caught": caught.rollout_id})


def nothing_left(composition: Composition, trust: Mapping[str, float]) -> bool:
    """Whether no weighted signal and no gate of the composition counts under these factors."""
    factors = _factors(composition, trust)
    return not any(
        factors[signal.name] > 0
        for signal in composition.signals
        if signal.role is Role.GATE or (signal.role is Role.WEIGHTED and signal.weight > 0)
    )


def _reward(signals: Sequence[SignalConfig], weights: Mapping[str, float], found: Scores) -> float:
    """Of a rollout that is not null."""
    if _trips(signals, found):
        return 0.0
    if _closed([s for s in signals if s.role is Role.GATE], found):
        reward = 0.0
    else:
        reward = _soft(weights, found)
    for signal in signals:
        if signal.role is Role.CAP and _value(found, signal) < signal.bar:
            reward = min(reward, signal.most)
    for signal in signals:
        if signal.role is Role.PENALTY:
            reward -= signal.weight * _value(found, signal)
    return reward


def _soft(weights: Mapping[str, float], found: Scores) -> float:
    if not weights:
        return 1.0
    if len(weights) == 1:  # no rounding by weight / weight
        (name,) = weights
        return float(found[name].value or 0.0)
    whole = math.fsum(w for w in weights.values() if w > 0)
    soft = math.fsum(w * (found[name].value or 0.0) for name, w in weights.items()) / whole
    return min(1.0, max(0.0, soft)) if min(weights.values()) < 0 else soft


def _closed(gates: Sequence[SignalConfig], found: Scores) -> bool:
    values = [(gate.bar, found[gate.name].value) for gate in gates if gate.name in found]
    return any(value is not None and value < bar for bar, value in values)


def _value(found: Scores, signal: SignalConfig) -> float:
    """Of a score that may only be missing or null where a closed gate has decided."""
    score = found.get(signal.name)
    return 0.0 if score is None or score.value is None else score.value


def _trips(signals: Sequence[SignalConfig], found: Scores) -> list[Score]:
    wires = [s for s in signals if s.role is Role.TRIPWIRE and s.name in found]
    return [found[wire.name] for wire in wires if _value(found, wire) >= wire.bar]


def _caught(signals: Sequence[SignalConfig], rollouts: Sequence[Scores | None]) -> Score | None:
    """The first score that fired a tripwire."""
    return next((s for found in rollouts if found for s in _trips(signals, found)), None)


def _is_weighed(signal: SignalConfig) -> bool:
    """Whether the trust in its judge decides how much it counts."""
    return signal.judged and signal.role is not Role.MONITOR


def _factors(composition: Composition, trust: Mapping[str, float] | None) -> dict[str, float]:
    """How far each signal counts, in [0, 1]; without `trust` every judge is believed."""
    return {
        s.name: min(1.0, max(0.0, trust.get(s.name, 0.0)))
        if trust is not None and _is_weighed(s)
        else 1.0
        for s in composition.signals
    }


def _without_verdict(
    composition: Composition, gates: Sequence[SignalConfig], rollouts: Sequence[Scores | None]
) -> dict[str, str]:
    """Weighted signals that miss a verdict which a rollout's reward would need.

    `gates` are those of the formula: one whose judge is not trusted excuses nobody.
    """
    missing: dict[str, str] = {}
    for signal in composition.with_role(Role.WEIGHTED):
        for found in rollouts:
            if found is None or _closed(gates, found):
                continue
            if signal.name not in found or found[signal.name].value is None:
                score = found.get(signal.name)
                missing[signal.name] = (score and score.cause) or "it gave no verdict"
    return missing
