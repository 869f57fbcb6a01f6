"""A trial: a judge answers the examples of a criterion, whose verdicts the author knows.

    example ──► judge ──► level ──► is it what the author says? ──► Row
    rows    ──► Summary: sensitivity and specificity with Wilson's bounds, and what a constant
                         answer would have reached

Examples are few and chosen, so the bounds are wide: a trial finds criteria that a judge reads
differently than their author. It trusts nobody; that takes labels of rollouts (`rewards/trust`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tradewind.rewards.criteria.criterion import Criterion, Example, Rubric
from tradewind.rewards.criteria.exhibit import Exhibit, exhibit_of_example
from tradewind.rewards.judges.settled import Judgement
from tradewind.rewards.trust.statistics.intervals import wilson
from tradewind.types.record import Record

Decide = Callable[[Rubric, Criterion, Exhibit], Judgement]


class Row(Record):
    """One example, and what was said of it."""

    criterion: str
    example: int
    """Its place in the file, from 1, good ones first."""
    good: bool
    """What the author says."""
    expected: str | None
    """The level the author gave, if any."""
    level: str | None
    """The level the judge gave; None if it gave none."""
    judged_good: bool | None
    """None for a null."""
    cause: str
    excerpt: str
    quotes: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether judge and author say the same; a null never does."""
        if self.expected is not None:
            return self.level == self.expected
        return self.judged_good is self.good


class Share(Record):
    """`hits` of `n` with Wilson's two-sided 95 % bounds."""

    hits: int
    n: int
    low: float
    high: float


class Summary(Record):
    """Of one criterion's rows. Good is what the author calls good, whatever the polarity."""

    criterion: str
    agreed: int
    examples: int
    nulls: int
    sensitivity: Share
    """Good examples that the judge finds good; nulls count in neither."""
    specificity: Share
    """Bad examples that the judge finds bad."""
    constant: float
    """Agreement of the better constant answer: a judge below it knows less than nothing."""


def try_criterion(rubric: Rubric, criterion: Criterion, decide: Decide) -> list[Row]:
    """A row for each example, good ones first."""
    ordered = sorted(criterion.examples, key=lambda example: not example.good)
    return [
        _row(rubric, criterion, number, example, decide)
        for number, example in enumerate(ordered, start=1)
    ]


def summarise(criterion: Criterion, rows: Sequence[Row]) -> Summary:
    """The figures of a criterion's rows."""
    good = [row for row in rows if row.good]
    bad = [row for row in rows if not row.good]
    return Summary(
        criterion=criterion.id,
        agreed=sum(row.agrees for row in rows),
        examples=len(rows),
        nulls=sum(row.judged_good is None for row in rows),
        sensitivity=_share(good, True),
        specificity=_share(bad, False),
        constant=max(len(good), len(bad)) / len(rows) if rows else 0.0,
    )


def _row(
    rubric: Rubric, criterion: Criterion, number: int, example: Example, decide: Decide
) -> Row:
    exhibit = exhibit_of_example(criterion, example)
    found = decide(rubric, criterion, exhibit)
    quotes = found.evidence.get("quotes") or []
    expected_met = found.level is not None and found.level == example.level
    return Row(
        criterion=criterion.id,
        example=number,
        good=example.good,
        expected=example.level,
        level=found.level,
        judged_good=example.good if expected_met else _judged_good(criterion, found),
        cause=found.cause,
        excerpt=" ".join(exhibit.work.split())[:80],
        quotes=tuple(quote["text"] for quote in quotes),
    )


def _judged_good(criterion: Criterion, found: Judgement) -> bool | None:
    if found.value is None:
        return None
    if found.level is not None:
        return criterion.is_good(found.level)
    return (found.value > 0.5) is (criterion.weight > 0)  # settled without a level


def _share(rows: Sequence[Row], wanted: bool) -> Share:
    judged = [row.judged_good for row in rows if row.judged_good is not None]
    hits = sum(verdict is wanted for verdict in judged)
    low, high = wilson(hits, len(judged))
    return Share(hits=hits, n=len(judged), low=low, high=high)
