"""Verifier `math`: is the agent's formula or number equal to the known one?

    task.reference   {"answer": "\\\\frac{1}{2}"}      LaTeX or plain text
    outcome          artefacts["answer"]: str

The library math-verify reads both and compares them symbolically, in a child with a deadline.
"""

from __future__ import annotations

from pydantic import Field, field_validator

from tradewind.rewards.library import Library
from tradewind.rewards.options import ReaderOptions
from tradewind.rewards.reference import BadReference, Reference
from tradewind.rewards.signal import Kind, Verdict
from tradewind.rewards.verifier import Verifier
from tradewind.types.record import Json

_UNREADABLE = "its answer cannot be read as mathematics"
_CONTROL: Json = {"gold": "$1$", "answer": "$1$"}


class MathOptions(ReaderOptions):
    """What `math` takes."""

    artefact: str = "answer"
    """Under which name the answer is reported."""
    longest: int = Field(default=2000, gt=0)
    """An answer with more characters is wrong."""


class MathReference(Reference):
    """What `math` reads of a task's reference."""

    answer: str

    @field_validator("answer")
    @classmethod
    def _says_something(cls, answer: str) -> str:
        if not answer.strip():
            raise ValueError("it is empty")
        return answer


class Math(Verifier[MathReference]):
    """Compares symbolically, in a child that lives on."""

    takes = MathOptions
    kind = Kind.MATCH
    reads = MathReference
    solution = "answer"

    def __init__(self, options: MathOptions) -> None:
        """Raises `UserError` if math-verify is not installed."""
        self._longest = options.longest
        self._library = Library(
            "math", options, "math_check.py", "math-verify", "'tradewind[verify]'"
        )
        super().__init__(options.artefact, self._library)
        self.version = f"1-math-verify-{self._library.version}"

    def decide(self, answer: str, reference: MathReference) -> Verdict:
        """1.0 if the answer equals the known one, else 0.0."""
        if len(answer) > self._longest:
            return Verdict(value=0.0, cause=f"it has more than {self._longest} characters")
        said = self._library.ask({"gold": reference.answer, "answer": answer}, _CONTROL)
        if not said["parsed"]:
            raise BadReference(_UNREADABLE)
        right = said["same"] is True
        return Verdict(value=float(right), cause=None if right else "it is another answer")

    def doubt(self, reference: MathReference) -> str | None:
        """Whether its answer can be read."""
        said = self._library.ask({"gold": reference.answer, "answer": None}, _CONTROL)
        return None if said["parsed"] else _UNREADABLE
