"""The held-out gap: does the training judge see a rise that another judge does not?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tradewind.rewards.trust.config import TrustConfig
from tradewind.rewards.trust.evidence import HeldoutPair
from tradewind.rewards.trust.statistics import bootstrap


@dataclass(frozen=True)
class Gap:
    """D_t = [J_t - J_0] - [G_t - G_0] of one window against the first, with its lower bound."""

    value: float
    low: float


def newest_gaps(pairs: Sequence[HeldoutPair], config: TrustConfig) -> list[Gap]:
    """The gaps of the last two full windows, in order; fewer while there are no three windows.

    J and G are means over the same rollouts, so that D is the rise of mean(J - G). The bound is the
    bootstrap's over tasks, one-sided `level`: rollouts of a task are not independent.
    """
    size = config.heldout_window
    full = len(pairs) // size
    first = pairs[:size]
    return [
        _gap(first, pairs[n * size : (n + 1) * size], config.seed + n, config.level)
        for n in range(max(1, full - 2), full)
    ]


def _gap(
    first: Sequence[HeldoutPair], later: Sequence[HeldoutPair], seed: int, level: float
) -> Gap:
    marked = [(pair, sign) for sign, window in ((-1, first), (1, later)) for pair in window]
    tasks: dict[str, list[tuple[float, int]]] = {}
    for pair, sign in marked:
        tasks.setdefault(pair.task, []).append((pair.judged - pair.heldout, sign))
    value = _rise(list(tasks.values()))
    found = bootstrap(list(tasks.values()), _rise, seed, repeats=400, level=2 * level - 1)
    return Gap(value or 0.0, found.low if found is not None else 0.0)


def _rise(tasks: Sequence[Sequence[tuple[float, int]]]) -> float | None:
    after = [d for task in tasks for d, sign in task if sign > 0]
    before = [d for task in tasks for d, sign in task if sign < 0]
    if not after or not before:
        return None
    return sum(after) / len(after) - sum(before) / len(before)
