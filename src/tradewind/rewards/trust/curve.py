"""What a judged reward was worth: the judged curve beside one that labels correct, with intervals.

A judge that the policy has learnt to please shows as two curves that part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tradewind.rewards.trust.statistics import prediction_powered

WINDOW = 5
"""Steps whose verdicts and labels make one point: labels are few."""
LEAST = 5
"""Labels of a window below which nothing can be corrected."""


@dataclass(frozen=True)
class SteppedVerdict:
    """A judge's verdict on a trained rollout, and a label of it if somebody gave one."""

    step: int
    judged: float
    label: float | None = None


@dataclass(frozen=True)
class CurvePoint:
    """Means over the window that ends with `step`."""

    step: int
    judged: float
    corrected: float | None
    """None with too few labels."""
    low: float | None
    high: float | None
    labels: int


def corrected_curve(verdicts: Sequence[SteppedVerdict], window: int = WINDOW) -> list[CurvePoint]:
    """A point for each step with verdicts: the judged mean, and the prediction-powered one.

    Labels must be a random sample of the rollouts (`statistics/correction.py`); the interval is
    that of 95 %, clipped to [0, 1].
    """
    steps = sorted({verdict.step for verdict in verdicts})
    return [_point(step, verdicts, window) for step in steps]


def _point(step: int, verdicts: Sequence[SteppedVerdict], window: int) -> CurvePoint:
    own = [v for v in verdicts if step - window < v.step <= step]
    labelled = [v for v in own if v.label is not None]
    judged = sum(v.judged for v in own) / len(own)
    found = None
    if len(labelled) >= LEAST:
        found = prediction_powered(
            [v.label for v in labelled if v.label is not None],
            [v.judged for v in labelled],
            [v.judged for v in own if v.label is None],
        )
    if found is None:
        return CurvePoint(step, judged, None, None, None, len(labelled))
    low, high = found.interval()
    return CurvePoint(step, judged, found.value, max(0.0, low), min(1.0, high), len(labelled))
