"""The corrected reward curve parts from the judged one where the judge is fooled."""

from __future__ import annotations

import random

from tradewind.rewards.trust.curve import SteppedVerdict, corrected_curve


def verdicts(steps: int, label_share: float, seed: int = 1) -> list[SteppedVerdict]:
    """The truth stays at 0.4; from the tenth step on half of what is wrong fools the judge."""
    rng = random.Random(seed)
    found = []
    for step in range(steps):
        for _ in range(64):
            truth = float(rng.random() < 0.4)
            fooled = step >= 10 and rng.random() < 0.5
            judged = 1.0 if fooled else truth
            found.append(
                SteppedVerdict(step, judged, truth if rng.random() < label_share else None)
            )
    return found


def test_labels_show_that_the_judged_reward_rose_alone():
    curve = corrected_curve(verdicts(24, label_share=0.2))
    before, last = curve[8], curve[-1]
    assert before.corrected is not None and last.corrected is not None
    assert abs(before.judged - before.corrected) < 0.1
    assert last.judged > 0.65
    assert abs(last.corrected - 0.4) < 0.1
    assert last.low is not None and last.high is not None and last.low < 0.4 < last.high


def test_the_truth_lies_in_the_band_as_often_as_it_says():
    inside = 0
    for seed in range(60):
        point = corrected_curve(verdicts(15, label_share=0.15, seed=seed))[-1]
        assert point.low is not None and point.high is not None
        inside += point.low <= 0.4 <= point.high
    assert inside >= 52  # 95 % of 60, less three standard errors


def test_without_labels_nothing_is_corrected():
    curve = corrected_curve(verdicts(3, label_share=0.0))
    assert [(p.corrected, p.low, p.labels) for p in curve] == [(None, None, 0)] * 3


def test_where_all_is_labelled_the_labels_speak():
    curve = corrected_curve(verdicts(12, label_share=1.0))
    assert curve[-1].corrected is not None and abs(curve[-1].corrected - 0.4) < 0.08
    assert corrected_curve([]) == []
