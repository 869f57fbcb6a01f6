"""The measures that trust is decided on, each with its formula and its source.

    intervals    Interval, Estimate, Wilson's bounds, bootstrap over tasks
    agreement    Cohen's kappa, Gwet's AC1, Krippendorff's alpha, agreement of repeats
    accuracy     Confusion: sensitivity, specificity, Youden's J
    calibration  Brier score, expected calibration error
    correction   Rogan-Gladen, prediction-powered means
    noise        what a judge's errors leave of a reward's signal
    comparison   McNemar, two proportions, CUSUM, Spearman

What cannot be computed (no data, a constant) is None, never a NaN.
"""

from tradewind.rewards.trust.statistics.accuracy import Confusion
from tradewind.rewards.trust.statistics.agreement import (
    cohen_kappa,
    gwet_ac1,
    krippendorff_alpha,
    repeat_agreement,
)
from tradewind.rewards.trust.statistics.calibration import brier, expected_calibration_error
from tradewind.rewards.trust.statistics.comparison import (
    Difference,
    cusum,
    fisher,
    mcnemar,
    spearman,
    spearman_within,
    two_proportions,
)
from tradewind.rewards.trust.statistics.correction import (
    Corrected,
    prediction_powered,
    rogan_gladen,
)
from tradewind.rewards.trust.statistics.intervals import (
    Estimate,
    Interval,
    bootstrap,
    normal_quantile,
    wilson,
    wilson_lower,
    wilson_upper,
)
from tradewind.rewards.trust.statistics.noise import (
    effective_repeats,
    majority_accuracy,
    usable_signal,
)

__all__ = [
    "Confusion",
    "Corrected",
    "Difference",
    "Estimate",
    "Interval",
    "bootstrap",
    "brier",
    "cohen_kappa",
    "cusum",
    "effective_repeats",
    "expected_calibration_error",
    "fisher",
    "gwet_ac1",
    "krippendorff_alpha",
    "majority_accuracy",
    "mcnemar",
    "normal_quantile",
    "prediction_powered",
    "repeat_agreement",
    "rogan_gladen",
    "spearman",
    "spearman_within",
    "two_proportions",
    "usable_signal",
    "wilson",
    "wilson_lower",
    "wilson_upper",
]
