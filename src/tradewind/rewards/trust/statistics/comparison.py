"""Whether things differ: paired and unpaired shares, a stream against its past, two rankings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_EXACT_BELOW = 25
"""Discordant pairs below which McNemar's test is the exact binomial one."""


@dataclass(frozen=True)
class Difference:
    """A test statistic and its two-sided p-value."""

    statistic: float
    p: float


def mcnemar(only_first: int, only_second: int) -> Difference:
    """Do paired verdicts lean one way? b and c are the pairs in which one alone says yes.

    (b - c)^2/(b + c), chi-squared with one degree of freedom (McNemar 1947); with fewer than 25
    such pairs the p-value is that of the binomial test. Without any: p = 1.
    """
    n = only_first + only_second
    if n == 0:
        return Difference(0.0, 1.0)
    statistic = (only_first - only_second) ** 2 / n
    if n >= _EXACT_BELOW:
        return Difference(statistic, math.erfc(math.sqrt(statistic / 2)))
    tail = sum(math.comb(n, i) for i in range(min(only_first, only_second) + 1)) / 2**n
    return Difference(statistic, min(1.0, 2 * tail))


def fisher(hits_a: int, n_a: int, hits_b: int, n_b: int) -> float:
    """P(at least `hits_a` of the hits fall on a), were hits as likely on both sides (Fisher 1935).

    Exact and one-sided, so it holds for few items and far out in the tail.
    """
    hits, n = hits_a + hits_b, n_a + n_b
    most = min(hits, n_a)
    ways = sum(math.comb(n_a, k) * math.comb(n_b, hits - k) for k in range(hits_a, most + 1))
    return ways / math.comb(n, hits)


def two_proportions(hits_a: int, n_a: int, hits_b: int, n_b: int) -> Difference:
    """z test of a - b with the pooled share; p = 1 where nothing can be compared."""
    if n_a == 0 or n_b == 0:
        return Difference(0.0, 1.0)
    pooled = (hits_a + hits_b) / (n_a + n_b)
    spread = pooled * (1 - pooled) * (1 / n_a + 1 / n_b)
    if spread == 0:
        return Difference(0.0, 1.0)
    z = (hits_a / n_a - hits_b / n_b) / math.sqrt(spread)
    return Difference(z, math.erfc(abs(z) / math.sqrt(2)))


def cusum(values: Sequence[float], target: float, slack: float, limit: float) -> int | None:
    """Index at which a stream's mean is seen to have left `target`, either way; None if it has not.

    Page's cumulative sums (1954): S+ = max(0, S+ + x - target - slack), S- likewise below; the
    alarm is the first of them above `limit`. `slack` is half of the shift that matters.
    """
    above = below = 0.0
    for index, value in enumerate(values):
        above = max(0.0, above + value - target - slack)
        below = max(0.0, below + target - value - slack)
        if max(above, below) > limit:
            return index
    return None


def spearman(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Rank correlation, in [-1, 1]; ties share their mean rank. None if either is constant."""
    if len(x) != len(y):
        raise ValueError(f"{len(x)} values of one, {len(y)} of the other")
    if len(x) < 2:
        return None
    a, b = _ranks(x), _ranks(y)
    a, b = a - a.mean(), b - b.mean()
    scale = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / scale if scale > 0 else None


def spearman_within(groups: Sequence[tuple[Sequence[float], Sequence[float]]]) -> float | None:
    """Mean of the rank correlations inside groups, each weighted by its size.

    Inside a group the task is the same, so what correlates is behaviour. None if no group varies.
    """
    found = [(spearman(x, y), len(x)) for x, y in groups]
    known = [(value, n) for value, n in found if value is not None]
    if not known:
        return None
    return sum(value * n for value, n in known) / sum(n for _, n in known)


def _ranks(values: Sequence[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    data = np.asarray(values, float)
    _, where, counts = np.unique(data, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return ((last - counts + 1 + last) / 2)[where]
