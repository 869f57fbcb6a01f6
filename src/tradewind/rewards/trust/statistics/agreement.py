"""Agreement beyond chance, between two raters or many.

Print kappa, AC1 and the base rate together: at an observed agreement of 0.90 kappa is 0.80 with
half of the labels positive, 0.44 with 90 % and below 0 with 95 %; AC1 says 0.80, 0.88, 0.89.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence


def cohen_kappa(a: Sequence[Hashable], b: Sequence[Hashable]) -> float | None:
    """(po - pe)/(1 - pe) with pe = sum over k of a_k b_k from the two marginals (Cohen 1960).

    None without pairs, and where both raters give one and the same value to all (pe is 1).
    """
    n = _pairs(a, b)
    if n == 0:
        return None
    first, second = Counter(a), Counter(b)
    expected = sum(first[k] * second[k] for k in first) / n**2
    if expected == 1:
        return None
    return (_observed(a, b) - expected) / (1 - expected)


def gwet_ac1(a: Sequence[Hashable], b: Sequence[Hashable], categories: int = 2) -> float | None:
    """(po - pe)/(1 - pe) with pe = sum over k of pi_k(1 - pi_k)/(K - 1) (Gwet 2008).

    pi_k is the mean of the two marginals, K the number of categories: those that may occur
    (`categories`, at least 2), or those seen if there are more. None without pairs.
    """
    n = _pairs(a, b)
    if n == 0:
        return None
    both = Counter(a) + Counter(b)
    shares = [count / (2 * n) for count in both.values()]
    expected = sum(s * (1 - s) for s in shares) / (max(categories, len(shares), 2) - 1)
    return (_observed(a, b) - expected) / (1 - expected)


def krippendorff_alpha(raters: Sequence[Sequence[Hashable | None]]) -> float | None:
    """1 - Do/De for nominal data, raters with gaps (Krippendorff 2004, chapter 11).

    Args:
        raters: one row per rater, one column per item; None where the rater gave no label.

    With the coincidence matrix o_ck (each item with m >= 2 labels counts its ordered pairs
    1/(m - 1) each), n_c its margins and n their sum: Do = sum of o_ck (c != k) / n,
    De = sum of n_c n_k (c != k) / (n (n - 1)). None if no item has two labels, or if all
    labels are equal (nothing was told apart). Customary: from 0.80 reliable, from 0.667 tentative.
    """
    if len({len(row) for row in raters}) > 1:
        raise ValueError("raters must have a label or a gap for each item")
    margins: Counter[Hashable] = Counter()
    disagreed = 0.0
    for column in zip(*raters, strict=True):
        labels = Counter(label for label in column if label is not None)
        m = labels.total()
        if m < 2:
            continue
        margins.update(labels)
        disagreed += sum(count * (m - count) for count in labels.values()) / (m - 1)
    n = margins.total()
    expected = sum(count * (n - count) for count in margins.values())
    if expected == 0:
        return None
    return 1 - (disagreed / n) / (expected / (n * (n - 1)))


def repeat_agreement(items: Sequence[Sequence[Hashable]]) -> float | None:
    """Self-consistency: the mean over items of the share of pairs of repeats that agree.

    Unlike "equal to the majority" its expectation does not depend on the number of repeats.
    In [0, 1]; None if no item was judged twice.
    """
    shares = []
    for repeats in items:
        m = len(repeats)
        if m >= 2:
            same = sum(count * (count - 1) for count in Counter(repeats).values())
            shares.append(same / (m * (m - 1)))
    return sum(shares) / len(shares) if shares else None


def _pairs(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    if len(a) != len(b):
        raise ValueError(f"{len(a)} labels of one rater, {len(b)} of the other")
    return len(a)


def _observed(a: Sequence[Hashable], b: Sequence[Hashable]) -> float:
    return sum(x == y for x, y in zip(a, b, strict=True)) / len(a)
