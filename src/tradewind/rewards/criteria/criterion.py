"""A criterion: one question about one rollout, with the examples that say what it means.

    Rubric (a TOML file) ──► Criterion ──► Example good, bad
                                 │
                                 └──► value in [0, 1] of an answer to its question

The expert who writes it decides which answer is the good one (`polarity`, `weight`, `kind`); what
comes out of it during training is a signal of that name (`rewards/judges/signal.py`).
"""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from typing import Literal

from pydantic import Field, model_validator

from tradewind.types.digest import digest_of
from tradewind.types.record import Record
from tradewind.types.trust import TrustState

YES_NO = ("no", "yes")
MOST_LEVELS = 5
MINIMUM = (TrustState.UNCALIBRATED, TrustState.PROBATION, TrustState.TRUSTED)
"""States of a judge that a criterion may ask for; a quarantined one is never enough."""


class Kind(StrEnum):
    """What a criterion is for. The first two are gates, the others are weighted."""

    MUST = "must"
    """Without it the reward is 0."""
    MUST_NOT = "must-not"
    """With it the reward is 0."""
    SHOULD = "should"
    BONUS = "bonus"


class Scope(StrEnum):
    """Where a piece of evidence comes from (`criteria/exhibit.py`)."""

    ANSWER = "answer"
    """What the agent says: an artefact, or the text of its last turn if none is named."""
    TOOL_LOG = "tool_log"
    """What tools were called with, and what they returned."""
    FILE = "file"
    STATE = "state"
    """What the product holds afterwards: rows, a diff, a record."""
    TURNS = "turns"
    """The whole conversation."""


class Evidence(Record):
    """What a judge is shown: `answer`, `answer:reply`, `state:rows`, `file:report.md`, `turns`."""

    scope: Scope
    artefact: str | None = None
    """Key in the outcome's artefacts; None reads the captured turns."""

    @property
    def name(self) -> str:
        """Its name in examples, prompts and quotes."""
        return self.artefact or self.scope.value

    @property
    def needs_turns(self) -> bool:
        """Whether it can only be had from the captured conversation."""
        return self.artefact is None

    @model_validator(mode="after")
    def _has_a_source(self) -> Evidence:
        if self.artefact is None and self.scope in (Scope.FILE, Scope.STATE):
            raise ValueError(f'name the artefact that holds it, as in "{self.scope}:rows"')
        if self.artefact is not None and self.scope is Scope.TURNS:
            raise ValueError('"turns" is the captured conversation and has no name')
        return self


class Example(Record):
    """A piece of evidence whose verdict the expert knows."""

    good: bool
    shown: dict[str, str]
    """Text of each piece of evidence, by name."""
    task: str | None = None
    """What was asked, if that matters."""
    level: str | None = None
    """The answer that is right, where a scale has more than two."""
    note: str | None = None


class Criterion(Record):
    """Example::

    Criterion(id="states-the-number", question="Does the answer state the number of the rows?",
              evidence=(Evidence(scope="answer"), Evidence(scope="state", artefact="rows")))
    """

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    question: str = Field(min_length=1)
    kind: Kind = Kind.SHOULD
    weight: float = Field(default=1.0, allow_inf_nan=False)
    """Share of the weighted sum; a negative one takes off where the answer is high."""
    polarity: Literal["positive", "negative"] = "positive"
    """`positive`: value 1 is the highest level (yes); `negative`: value 1 is the lowest (no)."""
    levels: tuple[str, ...] = Field(default=YES_NO, min_length=2, max_length=MOST_LEVELS)
    """Answers from lowest to highest."""
    evidence: tuple[Evidence, ...] = Field(min_length=1)
    """The first one is the policy's own work: without it there is nothing to judge."""
    guidance: str | None = None
    """How to decide what the question leaves open; the judge reads it."""
    quotes: Literal["found", "always"] = "found"
    """`found`: every answer above the lowest level needs a quote; `always`: each one does."""
    checker: str | None = None
    """A deterministic check that makes a judge unnecessary (`criteria/checkers.py`)."""
    minimum_trust: TrustState = TrustState.PROBATION
    """Below this state of its judge the criterion has no weight."""
    author: str | None = None
    allow: tuple[str, ...] = ()
    """Findings of the linter that the author has thought about."""
    examples: tuple[Example, ...] = ()

    @property
    def needs_turns(self) -> bool:
        """Whether the captured conversation has to be at hand."""
        return any(piece.needs_turns for piece in self.evidence)

    @property
    def good_is_high(self) -> bool:
        """Whether the highest level is what the author wants to see."""
        return (self.polarity == "positive") == (self.weight > 0)

    @property
    def worst(self) -> float:
        """The value that serves the policy least: for evidence that nobody can read."""
        return 0.0 if self.weight > 0 else 1.0

    @property
    def gate(self) -> bool:
        """Whether it multiplies rather than adds."""
        return self.kind in (Kind.MUST, Kind.MUST_NOT)

    def value(self, level: str) -> float:
        """In [0, 1]: the level's place on the scale, turned over if the polarity is negative."""
        place = self.levels.index(level) / (len(self.levels) - 1)
        return place if self.polarity == "positive" else 1.0 - place

    def is_good(self, level: str) -> bool:
        """Whether the author calls this answer good: the top half of the scale, seen their way."""
        place = self.levels.index(level) / (len(self.levels) - 1)
        return place > 0.5 if self.good_is_high else place < 0.5

    @cached_property
    def digest(self) -> str:
        """16 hex digits over what can change a verdict: examples, author and weights cannot."""
        judged = {"id", "question", "polarity", "levels", "evidence", "guidance", "quotes"}
        return digest_of(self.model_dump(mode="json", include={*judged, "checker"}))

    @model_validator(mode="after")
    def _says_one_thing(self) -> Criterion:
        if self.minimum_trust not in MINIMUM:
            raise ValueError(f"minimum_trust is one of {', '.join(MINIMUM)}")
        if self.weight == 0:
            raise ValueError("weight 0 would never count; remove the criterion")
        if self.gate and self.weight < 0:
            raise ValueError(f"a {self.kind} is a gate and takes no negative weight")
        if self.kind is Kind.MUST_NOT and self.good_is_high:
            raise ValueError('a must-not is kept by a "no": write polarity = "negative"')
        if len({level.casefold() for level in self.levels}) < len(self.levels):
            raise ValueError("two levels have the same name")
        names = [piece.name for piece in self.evidence]
        if len(set(names)) < len(names):
            raise ValueError("two pieces of evidence have the same name")
        return self


class Rubric(Record):
    """The criteria of one file."""

    name: str
    version: str
    author: str | None = None
    criteria: tuple[Criterion, ...] = Field(min_length=1)

    def __getitem__(self, criterion: str) -> Criterion:
        """The criterion of that id; raises `KeyError`."""
        for found in self.criteria:
            if found.id == criterion:
                return found
        raise KeyError(criterion)

    @cached_property
    def digest(self) -> str:
        """16 hex digits over name, version and all that can change a verdict."""
        return digest_of([self.name, self.version, [found.digest for found in self.criteria]])

    def key(self, criterion: Criterion) -> str:
        """16 hex digits of one criterion in this version of the rubric.

        Other criteria of the file are not in it: adding one forgets no verdict and no trust.
        """
        return digest_of([self.name, self.version, criterion.digest])
