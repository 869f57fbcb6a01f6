"""Verifier `python`: does the agent's function give the right answers to inputs it never saw?

    task.reference   {"entry": "name", "cases": [{"args": [...], "kwargs": {}, "expected": ...}],
                      "rel_tol": 0, "abs_tol": 0}
                     or {"entry": "name", "test": source with `check(candidate)`}
                     and, if it is known, {"solution": source}
    outcome          artefacts["code"]: str, Python source that defines `entry`

    box (new for each candidate)          here                     asker (the task's own test)
    the function ◄── plain arguments ──── cases, or relayed ◄────── candidate(...)
                 ──── plain value ──────► compared here, or ──────► assert ...

Inputs go in and plain data comes out; what is right is never in the box. All cases must be
answered: neither an exit nor a printed verdict counts for anything.
"""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from tradewind.rewards.boxed import UNREADABLE, Ask, Boxed
from tradewind.rewards.options import BoxOptions
from tradewind.rewards.reference import (
    NumberReference,
    Reference,
    plain_value,
)
from tradewind.rewards.sandbox.box import Box
from tradewind.rewards.sandbox.inside.plain import decode, encode
from tradewind.rewards.sandbox.level import Level
from tradewind.rewards.sandbox.process import KillableProcess, NoAnswer
from tradewind.rewards.sandbox.same import same
from tradewind.rewards.sandbox.view import INSIDE
from tradewind.rewards.signal import Kind, Verdict, VerifierFailed
from tradewind.rewards.tally import tally
from tradewind.rewards.verifier import Verifier
from tradewind.types.record import Json

_CONTROL_TEST = {"test": "def check(candidate): pass", "entry": "control"}
_CONTROL = {"code": "def control():\n    return 1", "entry": "control"}


class FunctionOptions(BoxOptions):
    """What `python` takes."""

    artefact: str = "code"
    """Under which name the source is reported."""
    partial: bool = False
    """Whether the share of right answers is the value, instead of 1 for all and 0 for less."""


class Case(Reference):
    """One hidden input and its answer."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = Field(default_factory=dict)
    expected: Any = None

    @field_validator("args", "kwargs", "expected", mode="before")
    @classmethod
    def _plain(cls, value: Any) -> Any:
        return plain_value(value)


class FunctionReference(NumberReference):
    """What `python` reads of a task's reference."""

    entry: str
    """The function's name; `Solution.solve` is a method of a new instance."""
    cases: tuple[Case, ...] = ()
    test: str | None = None
    solution: str | None = None

    @model_validator(mode="after")
    def _says_what_is_right(self) -> Self:
        if bool(self.cases) == (self.test is not None):
            raise ValueError('its reference needs "cases" or a "test", one of the two')
        if self.test is not None:
            try:
                compile(self.test, "test", "exec")
            except (SyntaxError, ValueError) as error:
                raise ValueError(f'its "test" does not compile ({error})') from error
        return self

    def guessable(self) -> bool:
        """Whether one and the same answer is right for every case."""
        if not self.cases:
            return False
        first = self.cases[0].expected
        return all(same(first, case.expected) for case in self.cases)


class PythonFunction(Verifier[FunctionReference]):
    """Runs the function in a box that is new for each candidate."""

    version = "2"
    takes = FunctionOptions
    kind = Kind.EXECUTABLE
    reads = FunctionReference

    def __init__(self, options: FunctionOptions, level: Level | None = None) -> None:
        """Raises `UserError` if this machine cannot isolate as well as asked."""
        self._options = options
        self._boxed = Boxed("python", options, "candidate.py", level)
        self._asker = KillableProcess(Box(self._boxed.level, options.limits()), INSIDE / "asker.py")
        super().__init__(options.artefact, self._boxed, self._asker)

    def decide(self, answer: str, reference: FunctionReference) -> Verdict:
        """1.0 if every answer is right, else 0.0 (or the share, with `partial`)."""
        return self._boxed.fairly(lambda ask: self._try(ask, answer, reference), self._control)

    def doubt(self, reference: FunctionReference) -> str | None:
        """Whether the same answer is right for every input."""
        if reference.guessable():
            return "every case expects the same answer, so that a constant would pass"
        return None

    def _try(self, ask: Ask, code: str, reference: FunctionReference) -> Verdict:
        loaded = ask({"code": code, "entry": reference.entry})
        if "ok" not in loaded:
            return Verdict(value=0.0, cause=f"the code does not load ({_words(loaded)})")
        if reference.test is not None:
            return self._tested(ask, reference.test, reference.entry)
        faults = [_answers(ask, case, reference) for case in reference.cases]
        return tally(faults, partial=self._options.partial)

    def _tested(self, ask: Ask, test: str, entry: str) -> Verdict:
        """The task's own test says it; each call of its candidate is answered by the box."""
        seconds = self._options.deadline_s
        try:
            said = self._asker.ask({"test": test, "entry": entry}, seconds)
            while "call" in said:
                said = self._asker.ask(_plain_answer(ask({"call": said["call"]})), seconds)
        except (NoAnswer, *UNREADABLE):
            self._asker.kill()  # it still waits for an answer, and would take the next test for it
            raise
        calls = said["calls"]
        if "failed" in said:
            return Verdict(value=0.0, cause=said["failed"], evidence={"calls": calls})
        if calls == 0:
            raise VerifierFailed("the task's test never calls its candidate")
        return Verdict(value=1.0, evidence={"calls": calls})

    def _control(self, ask: Ask) -> None:
        """A candidate and a test that are known to work; raises `NoAnswer` if they do not."""
        right = ask(_CONTROL) == {"ok": True} and ask({"call": [[], {}]}) == {"value": 1}
        told = self._asker.ask(_CONTROL_TEST, self._options.deadline_s)
        if not right or "done" not in told:
            raise NoAnswer("a function that returns 1 does not")


def _answers(ask: Ask, case: Case, reference: FunctionReference) -> str | None:
    """None if the case is answered rightly, else what is wrong."""
    named = {name: encode(value) for name, value in case.kwargs.items()}
    said = ask({"call": [[encode(value) for value in case.args], named]})
    if "raised" in said:
        return f"it raised {_words(said)}"
    if same(case.expected, decode(said["value"]), reference.tolerance):
        return None
    return "its answer is wrong"


def _plain_answer(said: Json) -> Json:
    """What the box said, if it is an answer at all; raises `ValueError` or `KeyError`."""
    if "raised" in said:
        name, message = said["raised"]
        return {"raised": [str(name), str(message)]}
    decode(said["value"])
    return {"value": said["value"]}


def _words(said: Json) -> str:
    name, message = said["raised"]
    return f"{name}: {message}"[:300]
