"""Verifier `stdio`: does the agent's program print the right output for inputs it never saw?

    task.reference   {"cases": [{"stdin": str, "stdout": str}], "rel_tol": 0, "abs_tol": 0}
                     and, if it is known, {"solution": source}
    outcome          artefacts["code"]: str, a Python program

Each input meets a new process in the candidate's box; what it printed comes back and is compared
here. Spaces at the end of a line and empty lines at the end do not count. With a tolerance, words
that are numbers may be met approximately.
"""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from tradewind.rewards.boxed import Ask, Boxed
from tradewind.rewards.functions import FunctionOptions
from tradewind.rewards.matches import NUMBER
from tradewind.rewards.reference import NumberReference, Reference
from tradewind.rewards.sandbox.level import Level
from tradewind.rewards.sandbox.process import NoAnswer
from tradewind.rewards.sandbox.same import Tolerance, same
from tradewind.rewards.signal import Kind, Verdict
from tradewind.rewards.tally import tally
from tradewind.rewards.verifier import Verifier


class ProgramOptions(FunctionOptions):
    """What `stdio` takes."""

    max_output: int = Field(default=1_000_000, gt=0)
    """Bytes of output per input; a program that prints more is wrong."""


class Run(Reference):
    """One hidden input and the output it should give."""

    stdin: str
    stdout: str


class ProgramReference(NumberReference):
    """What `stdio` reads of a task's reference."""

    cases: tuple[Run, ...]
    solution: str | None = None

    @model_validator(mode="after")
    def _there_are_cases(self) -> Self:
        if not self.cases:
            raise ValueError('its reference has no "cases"')
        return self


class PythonProgram(Verifier[ProgramReference]):
    """Runs the program in a box that is new for each candidate, once per input."""

    version = "1"
    takes = ProgramOptions
    kind = Kind.EXECUTABLE
    reads = ProgramReference

    def __init__(self, options: ProgramOptions, level: Level | None = None) -> None:
        """Raises `UserError` if this machine cannot isolate as well as asked."""
        self._options = options
        self._boxed = Boxed("stdio", options, "program.py", level)
        super().__init__(options.artefact, self._boxed)

    def decide(self, answer: str, reference: ProgramReference) -> Verdict:
        """1.0 if every output is right, else 0.0 (or the share, with `partial`)."""
        return self._boxed.fairly(lambda ask: self._try(ask, answer, reference), _control)

    def doubt(self, reference: ProgramReference) -> str | None:
        """Whether the same output is right for every input."""
        first, *others = reference.cases
        if all(agrees(first.stdout, case.stdout) for case in others):
            return "every case expects the same output, so that a constant would pass"
        return None

    def _try(self, ask: Ask, code: str, reference: ProgramReference) -> Verdict:
        loaded = ask({"code": code})
        if "ok" not in loaded:
            return Verdict(value=0.0, cause=f"the program does not compile ({loaded['raised']})")
        faults = [self._prints(ask, case, reference.tolerance) for case in reference.cases]
        return tally(faults, partial=self._options.partial)

    def _prints(self, ask: Ask, case: Run, tolerance: Tolerance) -> str | None:
        said = ask({"stdin": case.stdin, "most": self._options.max_output})
        if said["cut"]:
            return f"it printed more than {self._options.max_output} bytes"
        return (
            None if agrees(case.stdout, str(said["stdout"]), tolerance) else "its output is wrong"
        )


def agrees(expected: str, got: str, tolerance: Tolerance | None = None) -> bool:
    """Whether two outputs are the same, line by line, and word by word where numbers may differ."""
    ours, theirs = _lines(expected), _lines(got)
    if ours == theirs:
        return True
    if tolerance is None or not tolerance.any or len(ours) != len(theirs):
        return False
    return all(_close(a.split(), b.split(), tolerance) for a, b in zip(ours, theirs, strict=True))


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _close(expected: list[str], got: list[str], tolerance: Tolerance) -> bool:
    return len(expected) == len(got) and all(
        a == b
        or (
            NUMBER.fullmatch(a) is not None
            and NUMBER.fullmatch(b) is not None
            and same(float(a), float(b), tolerance)
        )
        for a, b in zip(expected, got, strict=True)
    )


def _control(ask: Ask) -> None:
    ask({"code": "print(input())"})
    if ask({"stdin": "1", "most": 10}) != {"stdout": "1\n", "cut": False}:
        raise NoAnswer("a program that prints its input does not")
