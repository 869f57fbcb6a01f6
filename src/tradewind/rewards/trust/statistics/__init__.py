"""The measures that trust is decided on, each with its formula and its source.

    intervals    Interval, Wilson's bounds, bootstrap over tasks
    agreement    Cohen's kappa, Gwet's AC1, Krippendorff's alpha, agreement of repeats
    accuracy     Confusion: sensitivity, specificity
    calibration  Brier score, expected calibration error
    correction   prediction-powered means
    noise        what a judge's errors leave of a reward's signal
    comparison   McNemar, Fisher, Spearman

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
    fisher,
    mcnemar,
    spearman,
    spearman_within,
)
from tradewind.rewards.trust.statistics.correction import (
    Corrected,
    prediction_powered,
)
from tradewind.rewards.trust.statistics.intervals import (
    Interval,
    bootstrap,
    normal_quantile,
    wilson,
    wilson_lower,
)
from tradewind.rewards.trust.statistics.noise import (
    effective_repeats,
    usable_signal,
)

__all__ = [
    "Confusion",
    "Corrected",
    "Interval",
    "bootstrap",
    "brier",
    "cohen_kappa",
    "effective_repeats",
    "expected_calibration_error",
    "fisher",
    "gwet_ac1",
    "krippendorff_alpha",
    "mcnemar",
    "normal_quantile",
    "prediction_powered",
    "repeat_agreement",
    "spearman",
    "spearman_within",
    "usable_signal",
    "wilson",
    "wilson_lower",
]
