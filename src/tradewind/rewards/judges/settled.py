"""What is said of an exhibit without asking a judge."""

from __future__ import annotations

import math

from tradewind.rewards.criteria.checkers import run_checker
from tradewind.rewards.criteria.criterion import Criterion, Rubric
from tradewind.rewards.criteria.exhibit import Exhibit
from tradewind.rewards.judges.blank import why_blank
from tradewind.rewards.signal import Verdict
from tradewind.types.record import Json


class Judgement(Verdict):
    """What is said of one exhibit. The cause of a null begins with its kind of failure."""

    cause: str
    level: str | None = None
    """The answer; None for a null, and for what was settled without one."""


def about(rubric: Rubric, criterion: Criterion) -> Json:
    """What the evidence of every judgement begins with."""
    return {
        "rubric": f"{rubric.name} {rubric.version}",
        "rubric_hash": rubric.key(criterion),
        "criterion": criterion.id,
        "minimum_trust": criterion.minimum_trust,
    }


def without_a_judge(
    rubric: Rubric, criterion: Criterion, exhibit: Exhibit, max_chars: float = math.inf
) -> Judgement | None:
    """The judgement that needs none; None if a judge has to look at up to `max_chars`."""
    value, level, cause, how = 0.0, None, why_blank(exhibit), "blank"
    length = sum(map(len, exhibit.shown.values()))
    if cause is not None:
        pass
    elif criterion.checker is not None:
        level, cause = run_checker(criterion, exhibit)
        value, how = criterion.value(level), f"checker {criterion.checker}"
    elif length > max_chars:
        cause = f"the evidence has {length} characters, more than max_chars = {max_chars}"
        value, how = criterion.worst, "length"
    else:
        return None
    evidence = {**about(rubric, criterion), "settled_by": how}
    return Judgement(value=value, level=level, cause=cause, evidence=evidence)
