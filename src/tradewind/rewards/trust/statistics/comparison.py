"""Whether things differ: paired and unpaired shares, two rankings."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

_EXACT_BELOW = 25
"""Discordant pairs below which McNemar's test is the exact binomial one."""


def mcnemar(only_first: int, only_second: int) -> float:
    """Two-sided p: do paired verdicts lean one way? b and c are pairs in which one alone says yes.

    (b - c)^2/(b + c), chi-squared with one degree of freedom (McNemar 1947); with fewer than 25
    such pairs the binomial test. 1 without any.
    """
    n = only_first + only_second
    if n == 0:
        return 1.0
    if n >= _EXACT_BELOW:
        return math.erfc(abs(only_first - only_second) / math.sqrt(2 * n))
    tail: float = sum(math.comb(n, i) for i in range(min(only_first, only_second) + 1)) / 2**n
    return min(1.0, 2 * tail)


def fisher(hits_a: int, n_a: int, hits_b: int, n_b: int) -> float:
    """P(at least `hits_a` of the hits fall on a), were hits as likely on both sides (Fisher 1935).

    Exact and one-sided, so it holds for few items and far out in the tail.
    """
    hits, n = hits_a + hits_b, n_a + n_b
    most = min(hits, n_a)
    ways = sum(math.comb(n_a, k) * math.comb(n_b, hits - k) for k in range(hits_a, most + 1))
    return ways / math.comb(n, hits)


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
