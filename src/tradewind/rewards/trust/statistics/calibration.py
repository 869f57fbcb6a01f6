"""Whether a judge's probabilities mean what they say."""

from __future__ import annotations

from collections.abc import Sequence


def brier(probabilities: Sequence[float], labels: Sequence[bool | int]) -> float | None:
    """Mean of (p - y)^2, in [0, 1], less is better (Brier 1950); None without items."""
    pairs = _pairs(probabilities, labels)
    return sum((p - y) ** 2 for p, y in pairs) / len(pairs) if pairs else None


def expected_calibration_error(
    probabilities: Sequence[float], labels: Sequence[bool | int], bins: int = 10
) -> float | None:
    """Sum over bins of (n_b/n) |mean label - mean p|, in [0, 1]; None without items.

    `bins` of equal width; a probability on an edge belongs to the lower bin, 0 to the first (Guo et
    al. 2017, section 2).
    """
    pairs = _pairs(probabilities, labels)
    if not pairs:
        return None
    members: dict[int, list[tuple[float, int]]] = {}
    for p, y in pairs:
        at = next(b for b in range(bins) if p <= (b + 1) / bins or b == bins - 1)
        members.setdefault(at, []).append((p, y))
    gaps = (abs(sum(y for _, y in found) - sum(p for p, _ in found)) for found in members.values())
    return sum(gaps) / len(pairs)


def _pairs(probabilities: Sequence[float], labels: Sequence[bool | int]) -> list[tuple[float, int]]:
    wrong = [p for p in probabilities if not 0 <= p <= 1]
    if wrong:
        raise ValueError(f"{wrong[0]} is no probability")
    return [(p, int(y)) for p, y in zip(probabilities, labels, strict=True)]
