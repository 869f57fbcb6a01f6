"""What a signal is: something that can say how good one episode was."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from enum import StrEnum
from typing import Any, ClassVar

from pydantic import Field, field_validator, model_validator

from tradewind.rewards.storable import storable
from tradewind.types.config import Config
from tradewind.types.episode import Episode
from tradewind.types.record import Json, Record
from tradewind.types.task import Task


class Kind(StrEnum):
    """The rungs of the ladder, most verifiable first."""

    EXECUTABLE = "executable"
    """The artefact was run: tests, programs, queries."""
    CHECK = "check"
    """A deterministic check of plain data: a schema, a state, the customer's own function."""
    MATCH = "match"
    """Compared with a known answer: exactly, numerically, symbolically."""
    LABEL = "label"
    """A person said so."""
    JUDGED = "judged"
    """A model's verdict on one criterion; it counts as far as it has earned trust."""
    BEHAVIOUR = "behaviour"
    """How the agent went about it, counted; says nothing about the result."""
    MONITOR = "monitor"
    """Watches for what must not be trained."""


class Verdict(Record):
    """Example: `Verdict(value=0.0, cause="2 rows expected, 5 returned")`."""

    value: float | None
    """In [0, 1] for most signals; None only for what the policy cannot have caused."""
    cause: str | None = None
    """For people; required if the value is None."""
    evidence: Json = Field(default_factory=dict)
    """Plain data that lets somebody else check the verdict: quotes, counts, hashes."""

    @field_validator("cause", "evidence", mode="before")
    @classmethod
    def _can_be_stored(cls, told: Any) -> Any:
        return storable(told)

    @model_validator(mode="after")
    def _finite_or_explained(self) -> Verdict:
        if self.value is None and not self.cause:
            raise ValueError("a null verdict needs a cause")
        if self.value is not None and not math.isfinite(self.value):
            raise ValueError(f"a verdict must be finite, got {self.value}")
        return self


class VerifierFailed(Exception):
    """The signal itself failed (crashed, out of time). Says nothing about the rollout."""


class Signal(ABC):
    """Says how good an episode was. Not thread-safe: each thread of a grader opens its own."""

    takes: ClassVar[type[Config]]
    """Its options."""
    version: str
    """Raised with every change that can change a verdict."""
    kind: Kind
    needs_turns: bool = False
    """Whether `score` looks at `episode.turns`."""

    def __init__(self, options: Any) -> None:  # noqa: B027  most have something to do
        """`options` is an instance of `takes`; raises `UserError` if they do not work."""

    @abstractmethod
    def score(self, episode: Episode) -> Verdict:
        """The verdict on a gradable episode; raises `VerifierFailed`."""

    def check(self, task: Task) -> str | None:
        """Why this task cannot be scored, or None if it can."""
        return None

    def oracle(self, task: Task) -> Json | None:
        """Artefacts that a perfect agent would have reported; None if it cannot know any."""
        return None

    def result(self, task: Task) -> Json | None:
        """The bare result, without the work that leads to it, where that is less than the oracle:
        the same artefacts for two tasks if one fixed answer is right for both."""
        return None

    def close(self) -> None:  # noqa: B027  many hold nothing open
        """End every child process and connection."""
