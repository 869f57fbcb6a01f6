"""Verifiers `exact` and `numeric`: is the agent's answer the known one?

    task.reference   exact     {"answer": text, or any JSON value, or a list of `accepted` ones}
                     numeric   {"answer": number, "rel_tol": 0, "abs_tol": 0}
    outcome          artefacts["answer"]

Texts are compared without the spaces around them; other values type by type, so that `true` is not
1. How far a number may be off is the task's to say, never the agent's.
"""

from __future__ import annotations

import math
import re
from typing import Any, Self

from pydantic import field_validator, model_validator

from tradewind.rewards.reference import NumberReference, Reference
from tradewind.rewards.sandbox.same import Tolerance, same
from tradewind.rewards.signal import Kind, Verdict
from tradewind.rewards.verifier import NothingReported, Verifier
from tradewind.types.config import Config

NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d{1,4})?", re.ASCII)
_LONGEST = 1000
"""Characters of a number; Python itself refuses to read very long ones."""


class MatchOptions(Config):
    """What `exact` and `numeric` take."""

    artefact: str = "answer"
    """Under which name the answer is reported."""
    fold_case: bool = False
    """Whether "Paris" and "paris" are the same; only texts."""


class ExactReference(Reference):
    """What `exact` reads of a task's reference."""

    answer: Any = None
    accepted: tuple[Any, ...] = ()
    """Other answers that are right, too."""

    @model_validator(mode="after")
    def _there_is_an_answer(self) -> Self:
        for answer in self.all:
            if answer is None or (isinstance(answer, str) and not answer.strip()):
                raise ValueError('its reference has no "answer"')
        return self

    @property
    def all(self) -> tuple[Any, ...]:
        """Every answer that is right."""
        return (self.answer, *self.accepted)


class NumericReference(NumberReference):
    """What `numeric` reads of a task's reference."""

    answer: int | float

    @field_validator("answer", mode="before")
    @classmethod
    def _is_a_number(cls, value: Any) -> Any:
        if type(value) not in (int, float) or not _is_finite(value):
            raise ValueError("must be a finite number")
        return value


class Exact(Verifier[ExactReference]):
    """The answer is one of the accepted ones, and nothing else."""

    version = "1"
    takes = MatchOptions
    kind = Kind.MATCH
    reads = ExactReference
    solution = "answer"

    def __init__(self, options: MatchOptions) -> None:
        super().__init__(options.artefact)
        self._options = options

    def reported(self, answer: Any) -> Any:
        """Any value but none."""
        if answer is None:
            raise NothingReported(f"no {self.artefact!r} was reported")
        return answer

    def decide(self, answer: Any, reference: ExactReference) -> Verdict:
        """1.0 if the answer is one of the accepted ones, else 0.0."""
        accepted = map(self._canonical, reference.all)
        right = any(same(one, self._canonical(answer)) for one in accepted)
        return Verdict(value=float(right), cause=None if right else "it is another answer")

    def _canonical(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return value.strip().casefold() if self._options.fold_case else value.strip()


class Numeric(Verifier[NumericReference]):
    """The answer is a number within the task's tolerance."""

    version = "1"
    takes = MatchOptions
    kind = Kind.MATCH
    reads = NumericReference
    solution = "answer"

    def __init__(self, options: MatchOptions) -> None:
        super().__init__(options.artefact)

    def reported(self, answer: Any) -> Any:
        """A finite number, however it is written."""
        if (number := read_number(answer)) is None:
            raise NothingReported(f"{self.artefact!r} is no finite number")
        return number

    def decide(self, answer: float, reference: NumericReference) -> Verdict:
        """1.0 if it is near enough, else 0.0."""
        near, right = reference.tolerance, reference.answer
        hit = same(right, answer, near) if near.any else _equal(right, answer)
        return Verdict(value=float(hit), cause=None if hit else "it is another number")


def read_number(value: Any) -> int | float | None:
    """A finite number, or a text that is nothing but one; None for anything else."""
    if type(value) is str and len(value) <= _LONGEST and NUMBER.fullmatch(value.strip()):
        text = value.strip()
        value = int(text) if text.lstrip("+-").isdigit() else float(text)
    if type(value) not in (int, float) or not _is_finite(value):
        return None
    number: int | float = value
    return number


def _is_finite(value: float) -> bool:
    """Also not for whole numbers beyond every float, with which one cannot compute."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _equal(expected: float, got: float) -> bool:
    """Without a tolerance 2 and 2.0 are the same number."""
    return same(expected, got, Tolerance()) or float(expected) == float(got)
