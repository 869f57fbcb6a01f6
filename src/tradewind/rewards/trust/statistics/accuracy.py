"""A judge against the truth: the four counts, and what they say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Confusion:
    """Counts of a judge's yes and no, by the label. Sums with `+`.

    Example: `Confusion.of(judged=[1, 1, 0], truth=[1, 0, 0])` is
    `Confusion(true_yes=1, false_no=0, true_no=1, false_yes=1)`.
    """

    true_yes: int = 0
    false_no: int = 0
    true_no: int = 0
    false_yes: int = 0

    @classmethod
    def of(cls, judged: Sequence[bool | int], truth: Sequence[bool | int]) -> Confusion:
        """Of verdicts and labels of the same items, in the same order."""
        pairs = [(bool(j), bool(y)) for j, y in zip(judged, truth, strict=True)]
        return cls(
            true_yes=pairs.count((True, True)),
            false_no=pairs.count((False, True)),
            true_no=pairs.count((False, False)),
            false_yes=pairs.count((True, False)),
        )

    @property
    def positives(self) -> int:
        """Items whose label is yes."""
        return self.true_yes + self.false_no

    @property
    def negatives(self) -> int:
        """Items whose label is no."""
        return self.true_no + self.false_yes

    @property
    def n(self) -> int:
        """All items."""
        return self.positives + self.negatives

    @property
    def sensitivity(self) -> float | None:
        """P(judge says yes | label yes); None without positives."""
        return self.true_yes / self.positives if self.positives else None

    @property
    def specificity(self) -> float | None:
        """P(judge says no | label no); None without negatives."""
        return self.true_no / self.negatives if self.negatives else None

    @property
    def base_rate(self) -> float | None:
        """Share of items whose label is yes."""
        return self.positives / self.n if self.n else None

    @property
    def accuracy(self) -> float | None:
        """Share of verdicts that equal the label."""
        return (self.true_yes + self.true_no) / self.n if self.n else None
