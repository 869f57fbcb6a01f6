"""What each component of the reward did, step by step: read from scores and compositions.

A component is a signal of a composition. Its mean is over the trained rollouts of a step, as the
signal gave it; what it adds is each value times the weight that it had in its group's formula
(`rewards/compose.py`): a judge's with its trust at that moment, nothing where it was left out.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from sqlalchemy import Connection, select

from tradewind.ledger.tables import compositions, consumption, credits, groups, rollouts, scores
from tradewind.rewards.config import Composition, Role, SignalConfig
from tradewind.types import Record


class ComponentReading(Record):
    """One component in one step.

    Example: `ComponentReading(step=7, name="work", role="penalty", weight=0.05, composition="3f9a",
    mean=1.2, adds=-0.06, n=64, nulls=0)`.
    """

    step: int
    name: str
    role: str
    weight: float
    composition: str
    """The newest one among the step's groups."""
    mean: float | None
    """Of its values; None if all were null."""
    adds: float | None
    """To the mean reward, before gates and caps; None for a role that adds nothing by itself."""
    n: int
    """Values that are not null."""
    nulls: int


def read_components(conn: Connection) -> list[ComponentReading]:
    """All components of all steps, by step, in the order of their composition."""
    known = {
        row.version: (row.position, Composition.model_validate(row.data))
        for row in conn.execute(select(compositions))
    }
    values: dict[int, dict[str, list[_Value]]] = defaultdict(lambda: defaultdict(list))
    used: dict[int, str] = {}
    for row in conn.execute(_TRAINED_SCORES):
        if row.composition is None:
            continue
        own = known[row.composition][1]
        share = _share(row.source, own, row.factors or {}, row.left_out or ())
        values[row.step][row.source].append(_Value(row.value, share))
        before = used.get(row.step)
        if before is None or known[row.composition][0] > known[before][0]:
            used[row.step] = row.composition
    return [
        _reading(step, signal, version, values[step][signal.name])
        for step, version in sorted(used.items())
        for signal in known[version][1].signals
        if values[step][signal.name]
    ]


def changes(readings: Sequence[ComponentReading]) -> list[int]:
    """Steps whose composition is another one than that of the step before."""
    by_step = {reading.step: reading.composition for reading in readings}
    ordered = sorted(by_step.items())
    return [step for (_, before), (step, now) in pairwise(ordered) if now != before]


_TRAINED_SCORES = (
    select(consumption.c.step, scores.c.source, scores.c.value)
    .add_columns(groups.c.composition, groups.c.factors, groups.c.left_out)
    .join(groups, groups.c.group_id == consumption.c.group_id)
    .join(rollouts, rollouts.c.group_id == groups.c.group_id)
    .join(credits, credits.c.rollout_id == rollouts.c.rollout_id)
    .join(scores, scores.c.rollout_id == rollouts.c.rollout_id)
    .where(credits.c.reward.is_not(None))
    .order_by(consumption.c.step)
)


class _Value(NamedTuple):
    """What a signal said of one rollout."""

    value: float | None
    share: float | None
    """What one unit of it added to the reward; None for a role that adds nothing by itself."""


def _reading(
    step: int, signal: SignalConfig, version: str, found: Sequence[_Value]
) -> ComponentReading:
    given = [one.value for one in found if one.value is not None]
    adds = [
        one.share * one.value for one in found if one.share is not None and one.value is not None
    ]
    return ComponentReading(
        step=step,
        name=signal.name,
        role=signal.role.value,
        weight=signal.weight,
        composition=version,
        mean=math.fsum(given) / len(given) if given else None,
        adds=math.fsum(adds) / len(adds) if adds else None,
        n=len(given),
        nulls=len(found) - len(given),
    )


def _share(
    source: str,
    composition: Composition,
    factors: Mapping[str, float],
    left_out: Collection[str],
) -> float | None:
    signal = next((s for s in composition.signals if s.name == source), None)
    if signal is None or signal.role not in (Role.PENALTY, Role.WEIGHTED):
        return None
    if source in left_out:
        return 0.0
    if signal.role is Role.PENALTY:
        return -signal.weight
    weights = {
        other.name: other.weight * factors.get(other.name, 1.0)
        for other in composition.with_role(Role.WEIGHTED)
        if other.name not in left_out
    }
    whole = math.fsum(weight for weight in weights.values() if weight > 0)
    return weights[source] / whole if whole else 0.0
