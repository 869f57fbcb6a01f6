"""What a verifier is."""

from __future__ import annotations

import math
from typing import Protocol

from pydantic import model_validator

from tradewind.types.outcome import Outcome
from tradewind.types.record import Record
from tradewind.types.task import Task


class Verdict(Record):
    """Example: `Verdict(value=0.0, cause="2 rows expected, 5 returned")`."""

    value: float | None
    """In [0, 1] for most verifiers; None only for what the policy cannot have caused."""
    cause: str | None = None
    """Evidence for people; required if the value is None."""

    @model_validator(mode="after")
    def _finite_or_explained(self) -> Verdict:
        if self.value is None and not self.cause:
            raise ValueError("a null verdict needs a cause")
        if self.value is not None and not math.isfinite(self.value):
            raise ValueError(f"a verdict must be finite, got {self.value}")
        return self


class VerifierFailed(Exception):
    """The verifier itself failed (crashed, out of time). Says nothing about the rollout."""


class Reward(Protocol):
    """A verifier. Not thread-safe: each thread of a grader opens its own."""

    name: str
    version: str
    """Raised with every change that can change a verdict."""

    def score(self, task: Task, outcome: Outcome) -> Verdict:
        """The verdict on a gradable outcome; raises `VerifierFailed`."""

    def check(self, task: Task) -> str | None:
        """Why this task cannot be scored, or None if it can."""

    def close(self) -> None:
        """End every child process."""
