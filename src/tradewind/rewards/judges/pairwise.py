"""Which of two pieces of work answers a criterion better: asked in both orders.

    order 1   first = a, second = b ──► first, second or tie
    order 2   first = b, second = a ──► first, second or tie
    the same work both times: it wins; anything else is a tie

A judge that prefers a place says "first" both times, so its preference never counts; `place` tells
of it. Rewards are pointwise; this is for studies of judges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from tradewind.rewards.criteria.criterion import Criterion, Evidence, Rubric, Scope
from tradewind.rewards.criteria.exhibit import Exhibit
from tradewind.rewards.judges.blank import why_blank
from tradewind.rewards.judges.judge import Judge
from tradewind.rewards.trust.statistics import mcnemar
from tradewind.types.record import Record

LEVELS = ("tie", "first", "second")
QUESTION = "Two agents did the same task. About which one's work is this more true: {question}"
GUIDANCE = "first and second are the two agents, no scale; say tie if you see no difference. "

Side = Literal["a", "b"]


class Comparison(Record):
    """What came of both orders."""

    winner: Side | None
    """None is a tie, or two orders that do not agree."""
    answers: tuple[str, str] | None
    """What was said in either order; None if nobody had to be asked."""

    @property
    def consistent(self) -> bool:
        """Whether both orders say the same."""
        return self.winner is not None or self.answers == ("tie", "tie")

    @property
    def place(self) -> str | None:
        """`first` or `second` if that place was preferred whatever stood there."""
        if self.answers is None or self.answers[0] != self.answers[1]:
            return None
        return None if self.answers[0] == "tie" else self.answers[0]


def compare(
    judge: Judge, rubric: Rubric, criterion: Criterion, a: Exhibit, b: Exhibit
) -> Comparison:
    """One reading in each order; raises `JudgeFailed` if either gives no verdict."""
    blanks = why_blank(a) is not None, why_blank(b) is not None
    if any(blanks):
        return Comparison(winner=_of_blanks(*blanks), answers=None)
    asked = pairwise(criterion)
    one = judge.read(rubric, asked, _pair(a, b)).reply.level
    other = judge.read(rubric, asked, _pair(b, a)).reply.level
    won: dict[tuple[str, str], Side] = {("first", "second"): "a", ("second", "first"): "b"}
    return Comparison(winner=won.get((one, other)), answers=(one, other))


def preferred_place(comparisons: Sequence[Comparison], level: float = 0.999) -> str | None:
    """The place that a judge leans to, whatever stands there; None if chance explains it.

    A judge that is merely unsure names either place equally often in both orders (McNemar's test).
    """
    leaning = Counter(found.place for found in comparisons)
    first, second = leaning["first"], leaning["second"]
    if mcnemar(first, second).p >= 1 - level:
        return None
    return "first" if first > second else "second"


def pairwise(criterion: Criterion) -> Criterion:
    """The question that is asked about a pair."""
    names = [piece.name for piece in criterion.evidence]
    evidence = [
        Evidence(scope=Scope.STATE, artefact=f"{place} {name}")
        for place in LEVELS[1:]
        for name in names
    ]
    return Criterion(
        id=criterion.id,
        question=QUESTION.format(question=criterion.question),
        levels=LEVELS,
        evidence=tuple(evidence),
        guidance=GUIDANCE + (criterion.guidance or ""),
    )


def _pair(first: Exhibit, second: Exhibit) -> Exhibit:
    shown = {
        f"{place} {name}": text
        for place, exhibit in zip(LEVELS[1:], (first, second), strict=True)
        for name, text in exhibit.shown.items()
    }
    return Exhibit(shown=shown, task=first.task)


def _of_blanks(a: bool, b: bool) -> Side | None:
    if a and b:
        return None
    return "b" if a else "a"
