"""What a ledger says about its run. Read-only queries; view, status, results and report use them.

Everything here is counted from the ledger's rows, not from what a process said about itself.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from sqlalchemy import ColumnElement, Connection, func, select

from tradewind.ledger.tables import consumption, credits, groups, rollouts, steps, turns
from tradewind.types import Purpose, Record, TurnState

TOKEN_AGES = "trainer/staleness/tokens/"
"""How the trainer's metrics begin that count tokens by age."""


class StepReading(Record):
    """One RL step, as its groups say."""

    step: int
    version: int
    at: float
    """Unix seconds of the commit."""
    seconds: float
    reward: float
    """Mean over the rollouts it trained on."""
    mixed: float
    """Share of its groups in which not all rewards were equal."""
    staleness: tuple[int, ...]
    """Per trained rollout: versions between its oldest token and the weights it trained."""
    metrics: dict[str, float]

    @property
    def token_ages(self) -> dict[int, int]:
        """Trained tokens by the number of versions that they were old when they were trained."""
        ages = {n: m for n, m in self.metrics.items() if n.startswith(TOKEN_AGES)}
        return {int(name.removeprefix(TOKEN_AGES)): int(n) for name, n in ages.items()}


def token_ages(steps: Iterable[StepReading]) -> dict[int, int]:
    """The same over several steps, youngest first."""
    total: Counter[int] = Counter()
    for step in steps:
        total.update(step.token_ages)
    return dict(sorted(total.items()))


def read_steps(conn: Connection) -> list[StepReading]:
    """All RL steps in order."""
    rewards, credit = _by_step(conn, credits.c.reward), _by_step(conn, credits.c.advantage)
    stale = _staleness_by_step(conn)
    rows = conn.execute(select(steps).order_by(steps.c.step))
    return [
        StepReading(
            step=row.step,
            version=row.version,
            at=row.committed_at,
            seconds=row.seconds,
            reward=_mean([r for group in rewards[row.step].values() for r in group]),
            mixed=_mixed_share(credit[row.step].values()),
            staleness=tuple(stale[row.step]),
            metrics=row.metrics,
        )
        for row in rows
    ]


def rollouts_trained(conn: Connection) -> int:
    """Rollouts with credit in consumed groups."""
    query = (
        select(func.count())
        .select_from(consumption)
        .join(rollouts, rollouts.c.group_id == consumption.c.group_id)
        .join(credits, credits.c.rollout_id == rollouts.c.rollout_id)
        .where(credits.c.advantage.is_not(None))
    )
    return int(conn.execute(query).scalar_one())


def delivered_share(conn: Connection) -> float | None:
    """Sampled tokens that reached an agent, of all sampled tokens; None before the first."""
    query = select(turns.c.delivered, func.sum(turns.c.tokens)).where(
        turns.c.state == TurnState.DONE.value
    )
    sums = {bool(d): n or 0 for d, n in conn.execute(query.group_by(turns.c.delivered))}
    total = sum(sums.values())
    return sums.get(True, 0) / total if total else None


def mixed_share(conn: Connection) -> tuple[float | None, int]:
    """Share of mixed groups among all graded training groups, and how many there were.

    A group whose rewards are the same, as far as they can be told apart, has no advantage anywhere:
    RL learns nothing from it.
    """
    query = (
        select(groups.c.group_id, credits.c.advantage)
        .join(rollouts, rollouts.c.group_id == groups.c.group_id)
        .join(credits, credits.c.rollout_id == rollouts.c.rollout_id)
        .where(groups.c.purpose == Purpose.TRAIN.value, credits.c.advantage.is_not(None))
    )
    credit: dict[str, list[float]] = defaultdict(list)
    for group, advantage in conn.execute(query):
        credit[group].append(advantage)
    return (_mixed_share(credit.values()), len(credit)) if credit else (None, 0)


def quantile(values: Sequence[float], q: float) -> float | None:
    """Linear interpolation between order statistics (type 7); None for no values."""
    if not values:
        return None
    ordered = sorted(values)
    at = q * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def _by_step(conn: Connection, what: ColumnElement[float]) -> dict[int, dict[str, list[float]]]:
    """Rewards or advantages of the groups of each step."""
    query = (
        select(consumption.c.step, consumption.c.group_id, what)
        .join(rollouts, rollouts.c.group_id == consumption.c.group_id)
        .join(credits, credits.c.rollout_id == rollouts.c.rollout_id)
        .where(credits.c.reward.is_not(None))
    )
    found: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for step, group, value in conn.execute(query):
        found[step][group].append(value)
    return found


def _staleness_by_step(conn: Connection) -> dict[int, list[int]]:
    """Counted from the oldest token to the weights that were trained, version - 1 (promise R8)."""
    query = (
        select(consumption.c.step, steps.c.version, func.min(turns.c.oldest_version).label("old"))
        .join(steps, steps.c.step == consumption.c.step)
        .join(rollouts, rollouts.c.group_id == consumption.c.group_id)
        .join(credits, credits.c.rollout_id == rollouts.c.rollout_id)
        .join(turns, turns.c.rollout_id == rollouts.c.rollout_id)
        .where(credits.c.advantage.is_not(None), turns.c.oldest_version.is_not(None))
        .group_by(consumption.c.step, steps.c.version, rollouts.c.rollout_id)
    )
    found: dict[int, list[int]] = defaultdict(list)
    for step, version, oldest in conn.execute(query):
        found[step].append(version - 1 - oldest)
    return found


def _mixed_share(found: Iterable[list[float]]) -> float:
    credit = list(found)
    return sum(any(group) for group in credit) / len(credit) if credit else 0.0


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
