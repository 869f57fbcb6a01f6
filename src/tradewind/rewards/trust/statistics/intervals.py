"""How sure one may be: Wilson's bounds of a share, bootstrap over tasks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import NamedTuple, TypeVar

import numpy as np

Item = TypeVar("Item")

LEVEL = 0.95
"""Default confidence."""


class Interval(NamedTuple):
    """A confidence interval; `low <= high`."""

    low: float
    high: float


def normal_quantile(probability: float) -> float:
    """z with P(Z <= z) = probability, for a standard normal Z; probability in (0, 1)."""
    return NormalDist().inv_cdf(probability)


def wilson(hits: float, n: int, level: float = LEVEL) -> Interval:
    """Wilson's score interval of a share, two-sided; [0, 1] if n is 0.

    Centre (p + z^2/2n)/(1 + z^2/n), half-width z/(1 + z^2/n) sqrt(p(1-p)/n + z^2/4n^2) with
    p = hits/n (Wilson 1927; Brown, Cai, DasGupta 2001 on why not the normal approximation).
    """
    return _wilson(hits, n, normal_quantile(0.5 + level / 2))


def wilson_lower(hits: float, n: int, level: float = LEVEL) -> float:
    """The share is at least this, with one-sided confidence `level`; 0 if n is 0."""
    return _wilson(hits, n, normal_quantile(level)).low


def _wilson(hits: float, n: int, z: float) -> Interval:
    if not 0 <= hits <= n:
        raise ValueError(f"{hits} hits of {n} is no share")
    if n == 0:
        return Interval(0.0, 1.0)
    share = hits / n
    scale = 1 + z * z / n
    centre = (share + z * z / (2 * n)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low = 0.0 if hits == 0 else max(0.0, centre - half)
    high = 1.0 if hits == n else min(1.0, centre + half)
    return Interval(low, high)


def bootstrap(
    tasks: Sequence[Item],
    statistic: Callable[[Sequence[Item]], float | None],
    seed: int,
    repeats: int = 1000,
    level: float = LEVEL,
) -> Interval | None:
    """Percentile interval of `statistic`, resampling whole tasks with replacement.

    Rollouts of one task are not independent, so the item that is resampled is the task with all
    its rollouts (Efron 1979; the cluster bootstrap). None if there are no tasks, or if the
    statistic is undefined (None) in every resample.
    """
    if not tasks:
        return None
    rng = np.random.default_rng(seed)
    draws = rng.integers(0, len(tasks), size=(repeats, len(tasks)))
    found = [statistic([tasks[i] for i in draw]) for draw in draws]
    known = [value for value in found if value is not None]
    if not known:
        return None
    low, high = np.quantile(known, [0.5 - level / 2, 0.5 + level / 2])
    return Interval(float(low), float(high))
