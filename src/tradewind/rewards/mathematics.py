"""Verifier `math`: is the agent's formula or number equal to the known one?

    task.reference   {"answer": "\\\\frac{1}{2}"}      LaTeX or plain text
    outcome          artefacts["answer"]: str

The library math-verify reads both and compares them symbolically, in a child with a deadline.
"""

from __future__ import annotations

from pydantic import Field

from tradewind.rewards.library import Library
from tradewind.rewards.options import ProcessOptions
from tradewind.rewards.reference import text_of
from tradewind.rewards.sandbox.fair import PolicysFault
from tradewind.rewards.signal import Kind, Verdict, VerifierFailed
from tradewind.types.episode import Episode
from tradewind.types.record import Json
from tradewind.types.task import Task

_CONTROL: Json = {"gold": "$1$", "answer": "$1$"}


class MathOptions(ProcessOptions):
    """What `math` takes."""

    artefact: str = "answer"
    """Under which name the answer is reported."""
    longest: int = Field(default=2000, gt=0)
    """An answer with more characters is wrong."""


class Math:
    """Implements `Signal`."""

    kind = Kind.MATCH
    needs_turns = False

    def __init__(self, options: MathOptions) -> None:
        """Raises `UserError` if math-verify is not installed."""
        self._options = options
        self._library = Library(
            "math", options, "math_check.py", "math-verify", "'tradewind[verify]'"
        )
        self.version = f"1-math-verify-{self._library.version}"

    def score(self, episode: Episode) -> Verdict:
        """1.0 if the answer equals the known one, else 0.0."""
        answer = text_of(episode.outcome, self._options.artefact)
        if isinstance(answer, Verdict):
            return answer
        if len(answer) > self._options.longest:
            return Verdict(value=0.0, cause=f"it has more than {self._options.longest} characters")
        question = {"gold": str(episode.task.reference.get("answer")), "answer": answer}
        try:
            said = self._library.ask(question, _CONTROL)
        except PolicysFault as error:
            return Verdict(value=0.0, cause=str(error))
        if not said["parsed"]:
            raise VerifierFailed("the task's own answer cannot be read as mathematics")
        right = said["same"] is True
        return Verdict(value=float(right), cause=None if right else "it is another answer")

    def check(self, task: Task) -> str | None:
        """Whether there is an answer that can be read."""
        answer = task.reference.get("answer")
        if not isinstance(answer, str) or not answer.strip():
            return 'its reference has no "answer"'
        try:
            said = self._library.ask({"gold": answer, "answer": None}, _CONTROL)
        except PolicysFault as error:
            return f"its answer takes too long to read ({error})"
        return None if said["parsed"] else "its answer cannot be read as mathematics"

    def oracle(self, task: Task) -> Json | None:
        """The answer itself."""
        return {self._options.artefact: task.reference.get("answer")}

    def close(self) -> None:
        """End the child."""
        self._library.close()
