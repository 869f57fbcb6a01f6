"""What a judge's errors leave of a reward's signal, and what repeats give back."""

from __future__ import annotations


def usable_signal(rate: float, false_yes: float, false_no: float) -> float:
    """Share of the signal left: the squared correlation of verdict and truth, phi^2.

    J^2 theta(1-theta)/(p(1-p)) with p = false_yes + J theta and J = 1 - false_yes - false_no;
    theta is the true pass `rate`. Constant error only dilutes the signal of a group-centred reward
    (a debiased reward gives the same advantages); on hard tasks false yes is what kills, on easy
    ones false no. 0 where verdicts or truth do not vary.
    """
    youden = 1 - false_yes - false_no
    judged = false_yes + youden * rate
    if not 0 < judged < 1:
        return 0.0
    return youden**2 * rate * (1 - rate) / (judged * (1 - judged))


def effective_repeats(repeats: int, correlation: float) -> float:
    """k/(1 + (k-1) rho): how many independent calls `repeats` calls on one item are worth.

    With a correlation of 0.5 within items 11 calls count as 1.8 (Kish's design effect).
    """
    return repeats / (1 + (repeats - 1) * correlation)
