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

from tradewind.rewards.reference import BadReference, NumberReference, Reference
from tradewind.rewards.sandbox.same import Tolerance, same
from tradewind.rewards.signal import Kind, Verdict, VerifierFailed
from tradewind.types.config import Config
from tradewind.types.episode import Episode
from tradewind.types.record import Json
from tradewind.types.task import Task

_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d{1,4})?", re.ASCII)
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


class Exact:
    """Implements `Signal`."""

    version = "1"
    kind = Kind.MATCH
    needs_turns = False

    def __init__(self, options: MatchOptions) -> None:
        self._options = options

    def score(self, episode: Episode) -> Verdict:
        """1.0 if the answer is one of the accepted ones, else 0.0."""
        got = episode.outcome.artefacts.get(self._options.artefact)
        if got is None:
            return Verdict(value=0.0, cause=f"no {self._options.artefact!r} was reported")
        try:
            accepted = ExactReference.of(episode.task).all
        except BadReference as error:
            raise VerifierFailed(str(error)) from error
        right = any(same(self._canonical(one), self._canonical(got)) for one in accepted)
        return Verdict(value=float(right), cause=None if right else "it is another answer")

    def check(self, task: Task) -> str | None:
        """Whether there is an answer."""
        return ExactReference.fault(task)

    def oracle(self, task: Task) -> Json | None:
        """The answer itself."""
        return {self._options.artefact: task.reference.get("answer")}

    def close(self) -> None:
        """Nothing is open."""

    def _canonical(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return value.strip().casefold() if self._options.fold_case else value.strip()


class Numeric:
    """Implements `Signal`."""

    version = "1"
    kind = Kind.MATCH
    needs_turns = False

    def __init__(self, options: MatchOptions) -> None:
        self._options = options

    def score(self, episode: Episode) -> Verdict:
        """1.0 if the answer is a number within the task's tolerance, else 0.0."""
        got = read_number(episode.outcome.artefacts.get(self._options.artefact))
        if got is None:
            return Verdict(value=0.0, cause=f"{self._options.artefact!r} is no finite number")
        try:
            reference = NumericReference.of(episode.task)
        except BadReference as error:
            raise VerifierFailed(str(error)) from error
        near = reference.tolerance
        right = same(reference.answer, got, near) if near.any else _equal(reference.answer, got)
        return Verdict(value=float(right), cause=None if right else "it is another number")

    def check(self, task: Task) -> str | None:
        """Whether there is a finite answer."""
        return NumericReference.fault(task)

    def oracle(self, task: Task) -> Json | None:
        """The answer itself."""
        return {self._options.artefact: task.reference.get("answer")}

    def close(self) -> None:
        """Nothing is open."""


def read_number(value: Any) -> int | float | None:
    """A finite number, or a text that is nothing but one; None for anything else."""
    if type(value) is str and len(value) <= _LONGEST and _NUMBER.fullmatch(value.strip()):
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
