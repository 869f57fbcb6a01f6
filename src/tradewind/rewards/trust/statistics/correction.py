"""The true rate behind judged ones: labels correct a judge that is cheap and biased."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tradewind.rewards.trust.statistics.intervals import LEVEL, Interval, normal_quantile


@dataclass(frozen=True)
class Corrected:
    """A prediction-powered mean with the variance of its error, by the normal approximation."""

    value: float
    variance: float
    weight: float
    """How much the judge was used: 0 is the mean of the labels alone."""

    def interval(self, level: float = LEVEL) -> Interval:
        """value -+ z * sqrt(variance), two-sided."""
        half = normal_quantile(0.5 + level / 2) * math.sqrt(self.variance)
        return Interval(self.value - half, self.value + half)


def prediction_powered(
    labels: Sequence[float],
    judged_labelled: Sequence[float],
    judged_unlabelled: Sequence[float],
    weight: float | None = None,
) -> Corrected | None:
    """A mean from few labels and many verdicts that is right whatever the judge's bias.

    theta = mean_L(y) + w (mean_U(j) - mean_L(j)), variance w^2 Var_U(j)/N + Var_L(y - w j)/n,
    with n labelled and N unlabelled items. `weight` 1 is PPI (Angelopoulos et al. 2023,
    arXiv 2301.09633); None is the power-tuned w* = Cov_L(y, j)/((1 + n/N) Var(j)) of PPI++
    (arXiv 2311.01453), in [0, 1]: a useless judge gets weight 0 and cannot harm.

    The labelled items must be a random sample of the same stream; `judged_labelled` are the
    judge's verdicts on them, in the same order. None with fewer than two labels.
    """
    y, at_labels = np.asarray(labels, float), np.asarray(judged_labelled, float)
    unlabelled = np.asarray(judged_unlabelled, float)
    if len(y) != len(at_labels):
        raise ValueError(f"{len(y)} labels, {len(at_labels)} verdicts on them")
    if len(y) < 2:
        return None
    if len(unlabelled) < 2:
        weight = 0.0
    if weight is None:
        weight = _tuned(y, at_labels, unlabelled)
    shift = weight * (unlabelled.mean() - at_labels.mean()) if weight else 0.0
    rest = y - weight * at_labels
    variance = rest.var(ddof=1) / len(y)
    if weight:
        variance += weight**2 * unlabelled.var(ddof=1) / len(unlabelled)
    return Corrected(float(y.mean() + shift), float(variance), float(weight))


def _tuned(
    y: np.ndarray[tuple[int], np.dtype[np.float64]],
    at_labels: np.ndarray[tuple[int], np.dtype[np.float64]],
    unlabelled: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> float:
    spread = float(np.concatenate([at_labels, unlabelled]).var(ddof=1))
    if spread == 0:
        return 0.0
    shared = float(np.cov(y, at_labels, ddof=1)[0, 1])
    best = shared / ((1 + len(y) / len(unlabelled)) * spread)
    return min(1.0, max(0.0, best))
