"""What each component of the reward did, step by step: read from scores and compositions.

A component is a signal of a composition. Its mean is over the trained rollouts of a step, as the
signal gave it; what it adds is the same times its weight in the formula (`rewards/compose.py`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

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
    values: dict[int, dict[str, list[float | None]]] = defaultdict(lambda: defaultdict(list))
    used: dict[int, str] = {}
    for row in conn.execute(_TRAINED_SCORES):
        values[row.step][row.source].append(row.value)
        if row.composition is None:
            continue
        before = used.get(row.step)
        if before is None or known[row.composition][0] > known[before][0]:
            used[row.step] = row.composition
    return [
        _reading(step, signal, known[version][1], version, values[step][signal.name])
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
    select(consumption.c.step, groups.c.composition, scores.c.source, scores.c.value)
    .join(groups, groups.c.group_id == consumption.c.group_id)
    .join(rollouts, rollouts.c.group_id == groups.c.group_id)
    .join(credits, credits.c.rollout_id == rollouts.c.rollout_id)
    .join(scores, scores.c.rollout_id == rollouts.c.rollout_id)
    .where(credits.c.reward.is_not(None))
    .order_by(consumption.c.step)
)


def _reading(
    step: int,
    signal: SignalConfig,
    composition: Composition,
    version: str,
    found: Sequence[float | None],
) -> ComponentReading:
    given = [value for value in found if value is not None]
    mean = math.fsum(given) / len(given) if given else None
    factor = _factor(signal, composition)
    return ComponentReading(
        step=step,
        name=signal.name,
        role=signal.role.value,
        weight=signal.weight,
        composition=version,
        mean=mean,
        adds=None if mean is None or factor is None else factor * mean,
        n=len(given),
        nulls=len(found) - len(given),
    )


def _factor(signal: SignalConfig, composition: Composition) -> float | None:
    """What one unit of the signal adds to the reward."""
    if signal.role is Role.PENALTY:
        return -signal.weight
    if signal.role is not Role.WEIGHTED:
        return None
    return signal.weight / math.fsum(
        other.weight for other in composition.with_role(Role.WEIGHTED) if other.weight > 0
    )
