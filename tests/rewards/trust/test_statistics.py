"""Every measure against a library that others wrote, or against numbers computed by hand."""

from __future__ import annotations

import random

import krippendorff
import numpy as np
import pytest
from ppi_py import ppi_mean_ci, ppi_mean_pointestimate
from scipy import stats
from sklearn import metrics
from statsmodels.stats.contingency_tables import mcnemar as reference_mcnemar
from statsmodels.stats.inter_rater import cohens_kappa as reference_kappa
from statsmodels.stats.proportion import proportion_confint

from tradewind.rewards.trust.statistics import (
    Confusion,
    bootstrap,
    brier,
    cohen_kappa,
    effective_repeats,
    expected_calibration_error,
    fisher,
    gwet_ac1,
    krippendorff_alpha,
    mcnemar,
    prediction_powered,
    repeat_agreement,
    spearman,
    spearman_within,
    usable_signal,
    wilson,
    wilson_lower,
)


def binary(seed: int, n: int, rate: float) -> list[int]:
    rng = random.Random(seed)
    return [int(rng.random() < rate) for _ in range(n)]


# Intervals


@pytest.mark.parametrize(("hits", "n"), [(0, 5), (5, 5), (1, 3), (19, 20), (480, 1000)])
def test_wilson_is_statsmodels(hits, n):
    low, high = proportion_confint(hits, n, alpha=0.05, method="wilson")
    assert wilson(hits, n) == pytest.approx((low, high), abs=1e-12)


@pytest.mark.parametrize(
    ("n", "bound"), [(20, 0.804), (40, 0.860), (60, 0.881), (100, 0.901), (200, 0.918)]
)
def test_one_sided_bounds_at_an_observed_share_of_95_percent(n, bound):
    assert wilson_lower(0.95 * n, n) == pytest.approx(bound, abs=6e-4)


def test_nothing_seen_says_nothing():
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson_lower(0, 0) == 0.0
    with pytest.raises(ValueError, match="3 hits of 2"):
        wilson(3, 2)


def test_bootstrap_is_scipys_over_tasks():
    tasks = list(np.random.default_rng(1).normal(3.0, 2.0, size=80))
    ours = bootstrap(tasks, lambda some: float(np.mean(some)), seed=7, repeats=2000)
    theirs = stats.bootstrap(
        (tasks,), np.mean, method="percentile", n_resamples=2000, rng=np.random.default_rng(3)
    ).confidence_interval
    assert ours == pytest.approx((theirs.low, theirs.high), abs=0.08)
    assert ours == bootstrap(tasks, lambda some: float(np.mean(some)), seed=7, repeats=2000)
    assert bootstrap([], lambda some: 1.0, seed=1) is None
    assert bootstrap([1, 2], lambda some: None, seed=1) is None


def test_rollouts_of_a_task_are_not_independent():
    """40 copies of one rollout say no more than one: the task is what is resampled."""
    rates = [0.0, 1.0, 1.0, 0.0, 1.0, 0.0]
    tasks = [[rate] * 40 for rate in rates]
    low, high = bootstrap(tasks, lambda some: float(np.mean(some)), seed=2)
    flat = [value for task in tasks for value in task]
    naive_low, naive_high = bootstrap(flat, lambda some: float(np.mean(some)), seed=2)
    assert high - low > 3 * (naive_high - naive_low)


# Agreement


@pytest.mark.parametrize("seed", range(4))
def test_kappa_is_scikit_learns_and_statsmodels(seed):
    a, b = binary(seed, 200, 0.7), binary(seed + 50, 200, 0.6)
    assert cohen_kappa(a, b) == pytest.approx(metrics.cohen_kappa_score(a, b), abs=1e-12)
    table = metrics.confusion_matrix(a, b)
    assert cohen_kappa(a, b) == pytest.approx(reference_kappa(table).kappa, abs=1e-12)


@pytest.mark.parametrize(
    ("base", "kappa", "ac1"), [(0.5, 0.80, 0.80), (0.9, 0.44, 0.88), (0.95, -0.05, 0.89)]
)
def test_kappa_falls_with_skew_where_ac1_does_not(base, kappa, ac1):
    """90 % agree, errors on both sides alike: what is computed in closed form."""
    n, wrong = 2000, 100  # each way
    both = round(base * n) - wrong
    a = [1] * both + [1] * wrong + [0] * wrong + [0] * (n - both - 2 * wrong)
    b = [1] * both + [0] * wrong + [1] * wrong + [0] * (n - both - 2 * wrong)
    assert cohen_kappa(a, b) == pytest.approx(kappa, abs=6e-3)
    assert gwet_ac1(a, b) == pytest.approx(ac1, abs=6e-3)


def test_agreement_of_constants():
    assert cohen_kappa([1, 1, 1], [1, 1, 1]) is None
    assert gwet_ac1([1, 1, 1], [1, 1, 1]) == 1.0
    assert krippendorff_alpha([[1, 1, 1], [1, 1, 1]]) is None
    assert cohen_kappa([], []) is None
    assert gwet_ac1([], []) is None
    with pytest.raises(ValueError, match="2 labels of one rater"):
        cohen_kappa([1, 0], [1])


@pytest.mark.parametrize("seed", range(4))
def test_alpha_with_gaps_is_that_of_krippendorff(seed):
    rng = random.Random(seed)
    truth = [rng.randrange(3) for _ in range(60)]
    raters: list[list[int | None]] = [
        [
            None if rng.random() < 0.3 else (label if rng.random() < 0.8 else rng.randrange(3))
            for label in truth
        ]
        for _ in range(4)
    ]
    table = [[np.nan if x is None else x for x in row] for row in raters]
    theirs = krippendorff.alpha(reliability_data=table, level_of_measurement="nominal")
    assert krippendorff_alpha(raters) == pytest.approx(theirs, abs=1e-12)


def test_alpha_needs_an_item_with_two_labels():
    assert krippendorff_alpha([[1, None], [None, 0]]) is None
    assert krippendorff_alpha([]) is None
    with pytest.raises(ValueError, match="a gap"):
        krippendorff_alpha([[1, 0], [1]])


def test_agreement_of_repeats_does_not_depend_on_their_number():
    def mean(k: int) -> float:
        rng = random.Random(5)
        found = repeat_agreement([[rng.random() < 0.8 for _ in range(k)] for _ in range(4000)])
        assert found is not None
        return found

    assert mean(2) == pytest.approx(0.8**2 + 0.2**2, abs=0.02)
    assert mean(7) == pytest.approx(0.8**2 + 0.2**2, abs=0.02)
    assert repeat_agreement([[1], []]) is None


# Accuracy and calibration


def test_confusion_is_scikit_learns():
    judged, truth = binary(1, 300, 0.6), binary(2, 300, 0.5)
    ours = Confusion.of(judged, truth)
    no_no, no_yes, yes_no, yes_yes = metrics.confusion_matrix(truth, judged).ravel()
    assert ours == Confusion(yes_yes, yes_no, no_no, no_yes)
    assert ours.sensitivity == pytest.approx(metrics.recall_score(truth, judged))
    assert ours.specificity == pytest.approx(metrics.recall_score(truth, judged, pos_label=0))


def test_a_side_without_labels_has_no_rate():
    only_yes = Confusion.of([1, 0], [1, 1])
    assert (only_yes.sensitivity, only_yes.specificity) == (0.5, None)
    assert Confusion().base_rate is None
    assert Confusion().accuracy is None


def test_a_constant_judge_is_as_accurate_as_the_base_rate_says():
    constant = Confusion.of([1] * 9, [1] * 6 + [0] * 3)
    assert constant.accuracy == constant.base_rate == pytest.approx(2 / 3)


def test_brier_is_scikit_learns():
    rng = random.Random(3)
    p = [rng.random() for _ in range(100)]
    y = [int(rng.random() < x) for x in p]
    assert brier(p, y) == pytest.approx(metrics.brier_score_loss(y, p))
    assert brier([], []) is None
    with pytest.raises(ValueError, match="no probability"):
        brier([1.5], [1])


def test_calibration_error_by_hand():
    # bin (0.2, 0.3]: mean p 0.25, labels 0.5; bin (0.8, 0.9]: mean p 0.9, labels 1.
    p, y = [0.2 + 0.03, 0.27, 0.9, 0.9], [0, 1, 1, 1]
    assert expected_calibration_error(p, y) == pytest.approx(0.5 * 0.25 + 0.5 * 0.1)
    assert expected_calibration_error([0.0, 1.0], [0, 1]) == 0.0
    assert expected_calibration_error([], []) is None


def test_a_calibrated_stream_has_little_calibration_error():
    rng = random.Random(4)
    p = [rng.random() for _ in range(20_000)]
    y = [int(rng.random() < x) for x in p]
    calibrated = expected_calibration_error(p, y)
    overconfident = expected_calibration_error([round(x) for x in p], y)
    assert calibrated is not None and calibrated < 0.02
    assert overconfident is not None and overconfident > 0.2


# Correction


def stream(seed: int, n: int, noise: float, shift: float):
    rng = np.random.default_rng(seed)
    y = rng.random(n)
    return y, y + shift + noise * rng.normal(size=n)


@pytest.mark.parametrize("weight", [1.0, None])
@pytest.mark.parametrize("seed", range(3))
def test_prediction_powered_means_are_those_of_ppi_python(seed, weight):
    y, j = stream(seed, 2000, 0.3, 0.2)
    ours = prediction_powered(y[:100], j[:100], j[100:], weight)
    theirs = ppi_mean_pointestimate(y[:100], j[:100], j[100:], lam=weight)
    assert ours is not None
    assert ours.value == pytest.approx(float(theirs[0]), abs=2e-3)
    low, high = ppi_mean_ci(y[:100], j[:100], j[100:], alpha=0.05, lam=weight)
    assert ours.interval() == pytest.approx((float(low[0]), float(high[0])), abs=3e-3)


def test_a_useless_judge_cannot_harm_and_a_good_one_helps():
    y, good = stream(9, 4000, 0.02, 0.3)
    noise = np.random.default_rng(11).random(4000)
    alone = prediction_powered(y[:50], y[:50], [])
    useless = prediction_powered(y[:50], noise[:50], noise[50:])
    helped = prediction_powered(y[:50], good[:50], good[50:])
    assert alone is not None and useless is not None and helped is not None
    assert useless.variance < 1.05 * alone.variance
    assert helped.variance < 0.1 * alone.variance
    assert helped.value == pytest.approx(y.mean(), abs=0.03)


def test_corrected_means_cover_the_truth_that_the_judge_misses():
    covered = missed = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        truth = (rng.random(600) < 0.4).astype(float)
        judged = np.where(truth == 1, rng.random(600) < 0.95, rng.random(600) < 0.3).astype(float)
        found = prediction_powered(truth[:100], judged[:100], judged[100:])
        assert found is not None
        low, high = found.interval()
        covered += low <= 0.4 <= high
        naive = wilson(judged.sum(), 600)
        missed += not naive.low <= 0.4 <= naive.high
    assert covered >= 182  # 95 % of 200, less three standard errors
    assert missed == 200


def test_too_few_labels_correct_nothing():
    assert prediction_powered([1.0], [1.0], [0.0, 1.0]) is None
    alone = prediction_powered([1.0, 0.0], [1.0, 1.0], [])
    assert alone is not None and (alone.value, alone.weight) == (0.5, 0.0)
    constant = prediction_powered([1.0, 0.0], [1.0, 1.0], [1.0, 1.0, 1.0])
    assert constant is not None and constant.weight == 0.0
    with pytest.raises(ValueError, match="2 labels, 1 verdicts"):
        prediction_powered([1.0, 0.0], [1.0], [])


# Noise

TABLE = {
    0.05: (0.61, 0.25, 0.13, 0.20),
    0.20: (0.79, 0.53, 0.35, 0.43),
    0.50: (0.78, 0.64, 0.50, 0.50),
    0.80: (0.62, 0.53, 0.43, 0.35),
}
ERRORS = ((0.02, 0.10), (0.10, 0.10), (0.20, 0.10), (0.10, 0.20))


@pytest.mark.parametrize("rate", TABLE)
def test_usable_signal_is_the_squared_correlation(rate):
    for (false_yes, false_no), expected in zip(ERRORS, TABLE[rate], strict=True):
        assert usable_signal(rate, false_yes, false_no) == pytest.approx(expected, abs=6e-3)


def test_usable_signal_of_a_real_stream():
    rng = np.random.default_rng(3)
    truth = rng.random(200_000) < 0.2
    judged = np.where(truth, rng.random(200_000) < 0.9, rng.random(200_000) < 0.1)
    measured = metrics.matthews_corrcoef(truth, judged) ** 2
    assert usable_signal(0.2, 0.1, 0.1) == pytest.approx(measured, abs=0.01)
    assert usable_signal(0.0, 0.0, 0.1) == 0.0
    assert usable_signal(0.5, 0.5, 0.5) == 0.0


def test_repeats_that_err_alike_count_little():
    assert effective_repeats(11, 0.5) == pytest.approx(1.83, abs=0.01)
    assert effective_repeats(11, 0.0) == 11
    assert effective_repeats(1, 0.9) == 1


# Comparison


@pytest.mark.parametrize(("b", "c"), [(3, 9), (40, 22), (0, 5), (12, 12), (30, 30)])
def test_mcnemar_is_statsmodels(b, c):
    table = [[50, b], [c, 50]]
    exact = reference_mcnemar(table, exact=b + c < 25, correction=False)
    assert mcnemar(b, c) == pytest.approx(exact.pvalue, rel=1e-9)


@pytest.mark.parametrize("counts", [(2, 15, 0, 150), (9, 10, 3, 40), (0, 5, 0, 5), (30, 60, 5, 60)])
def test_fishers_test_is_scipys(counts):
    a, n_a, b, n_b = counts
    table = [[a, n_a - a], [b, n_b - b]]
    theirs = stats.fisher_exact(table, alternative="greater").pvalue
    assert fisher(*counts) == pytest.approx(theirs, rel=1e-9)


def test_nothing_changed_is_no_test():
    assert mcnemar(0, 0) == 1.0


@pytest.mark.parametrize("seed", range(3))
def test_spearman_is_scipys_with_ties(seed):
    rng = np.random.default_rng(seed)
    x = list(rng.integers(0, 6, size=60).astype(float))
    y = list(np.asarray(x) + rng.integers(0, 5, size=60))
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)


def test_spearman_of_constants():
    assert spearman([1.0, 1.0], [1.0, 2.0]) is None
    assert spearman([1.0], [1.0]) is None
    with pytest.raises(ValueError, match="2 values of one"):
        spearman([1.0, 2.0], [1.0])


def test_correlation_inside_groups_does_not_see_what_lies_between_them():
    """Hard tasks have long answers and low scores; within each task length does not matter."""
    hard = ([90.0, 91.0, 92.0, 93.0], [0.1, 0.3, 0.0, 0.2])
    easy = ([10.0, 11.0, 12.0, 13.0], [0.9, 1.0, 0.7, 0.95])
    between = spearman(hard[0] + easy[0], hard[1] + easy[1])
    within = spearman_within([hard, easy])
    assert between is not None and between < -0.7
    assert within is not None and abs(within) < 0.2
    assert spearman_within([([1.0, 2.0], [0.5, 0.5])]) is None
