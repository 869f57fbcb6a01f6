"""When a second reading is worth its price, and how many independent ones repeats are worth.

Readings of one item are alike for reasons that repeating does not cure, so k of them with
correlation rho count as k / (1 + (k - 1) rho) independent ones (Kish's design effect). Repeats cure
noise, never bias.
"""

from __future__ import annotations

from collections.abc import Sequence

from tradewind.rewards.trust.statistics.noise import effective_repeats

ENOUGH_ITEMS = 20
"""Items with repeats from which a correlation is estimated."""


def worth_another(k: int, rho: float, least_gain: float) -> bool:
    """Whether reading k + 1 adds at least so much."""
    return effective_repeats(k + 1, rho) - effective_repeats(k, rho) >= least_gain


def correlation(items: Sequence[tuple[int, float, float]]) -> float | None:
    """Intraclass correlation of repeated readings, one-way analysis of variance (Donner 1986).

    `items` are (readings, sum, sum of squares), each with at least two readings. In [0, 1]; None
    for fewer than `ENOUGH_ITEMS`. The truth differs between items as well, and without labels that
    counts as correlation: the estimate is too high rather than too low, and the effective number
    of readings too low rather than too high.
    """
    n, total = len(items), sum(k for k, _, _ in items)
    if n < ENOUGH_ITEMS:
        return None
    grand = sum(s for _, s, _ in items) / total
    between = sum(k * (s / k - grand) ** 2 for k, s, _ in items) / (n - 1)
    within = sum(q - s * s / k for k, s, q in items) / (total - n)
    size = (total - sum(k * k for k, _, _ in items) / total) / (n - 1)
    spread = between + (size - 1) * within
    if spread <= 0:
        return 1.0  # nothing ever differed: another reading tells nothing
    return min(1.0, max(0.0, (between - within) / spread))
