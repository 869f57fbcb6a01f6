"""Verifier `reasoning-gym`: what the scorer of a puzzle's own dataset says.

    task.reference   {"dataset": name, "seed": int, "index": int, "config": {}}
    outcome          artefacts["answer"]: str

The puzzle is made again from its seed, in a child; tasks of `envs/adapters/reasoning_gym.py` have
this shape. Some scorers give a little for an answer that merely has the right form: without
`partial` only a full score counts.
"""

from __future__ import annotations

import math
from typing import Any

from pydantic import Field

from tradewind.rewards.library import Library
from tradewind.rewards.options import ReaderOptions
from tradewind.rewards.reference import Reference
from tradewind.rewards.sandbox.fair import PolicysFault
from tradewind.rewards.signal import Kind, Verdict, VerifierFailed
from tradewind.rewards.verifier import Verifier
from tradewind.types.record import Json
from tradewind.types.task import Task

_CONTROL: Json = {
    "dataset": "chain_sum", "seed": 0, "index": 0, "size": 1, "config": {}, "answer": None,
}  # fmt: skip


class PuzzleOptions(ReaderOptions):
    """What `reasoning-gym` takes."""

    artefact: str = "answer"
    """Under which name the answer is reported."""
    partial: bool = False
    """Whether a score below 1 counts; otherwise it is 0."""
    memory_mb: int = Field(default=2048, ge=128)
    """Address space of the child; the library imports much."""
    deadline_s: float = Field(default=20.0, gt=0)
    """Wall-clock limit of one verdict, in seconds."""


class PuzzleReference(Reference):
    """What `reasoning-gym` reads of a task's reference."""

    dataset: str
    seed: int
    index: int = Field(ge=0)
    config: dict[str, Any] = Field(default_factory=dict)


class Puzzle(Verifier[PuzzleReference]):
    """Asks the dataset's own scorer, in a child that lives on."""

    takes = PuzzleOptions
    kind = Kind.EXECUTABLE
    reads = PuzzleReference

    def __init__(self, options: PuzzleOptions) -> None:
        """Raises `UserError` if reasoning-gym is not installed."""
        self._partial = options.partial
        self._library = Library("reasoning-gym", options, "gym_score.py", "reasoning-gym")
        super().__init__(options.artefact, self._library)
        self.version = f"1-reasoning-gym-{self._library.version}"

    def decide(self, answer: str, reference: PuzzleReference) -> Verdict:
        """The dataset's own score in [0, 1]; without `partial` 1.0 or 0.0."""
        score = self._ask(reference, answer)["score"]
        if not isinstance(score, float) or not 0 <= score <= 1 or math.isnan(score):
            raise VerifierFailed(f"the scorer gave {score}, which is no share")
        value = score if self._partial else float(score == 1.0)
        cause = None if value == 1.0 else f"the dataset's scorer gives {score:g}"
        return Verdict(value=value, cause=cause, evidence={"score": score})

    def check(self, task: Task) -> str | None:
        """Whether the puzzle can be made again, and is the one that the agent is asked."""
        try:
            said = self._ask(PuzzleReference.of(task), None)
        except (PolicysFault, VerifierFailed) as error:
            return str(error)
        asked = task.input.get("question")
        if asked is not None and asked != said["question"]:
            return "this version of reasoning-gym makes another question from the same seed"
        return None

    def oracle(self, task: Task) -> Json | None:
        """The dataset's own answer, where it has one."""
        answer = self._ask(PuzzleReference.of(task), None)["oracle"]
        return None if answer is None else {self.artefact: answer}

    def _ask(self, reference: PuzzleReference, answer: str | None) -> Json:
        question = {**reference.model_dump(), "size": reference.index + 1, "answer": answer}
        said = self._library.ask(question, _CONTROL)
        if "error" in said:
            raise VerifierFailed(f"the puzzle cannot be scored: {said['error']}")
        return said
