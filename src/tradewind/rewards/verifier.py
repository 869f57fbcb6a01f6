"""What verifiers of one artefact have in common: a reference, a report, and whose fault it is."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Generic, Protocol, TypeVar

from tradewind.rewards.reference import BadReference, Reference
from tradewind.rewards.sandbox.fair import PolicysFault
from tradewind.rewards.signal import Signal, Verdict
from tradewind.types.episode import Episode
from tradewind.types.record import Json
from tradewind.types.task import Task

R = TypeVar("R", bound=Reference)


class Closes(Protocol):
    """A child, or something that holds one."""

    def close(self) -> None:
        """End it."""


class Verifier(Signal, Generic[R]):
    """A subclass says `decide`, and what else is different for it."""

    reads: type[R]
    """What it takes from a task's reference."""
    solution = "solution"
    """Under which name the reference holds what a perfect agent would report, if it does."""

    def __init__(self, artefact: str, *held: Closes) -> None:
        """`artefact` is the name under which the answer is reported, `held` what `close` ends."""
        self.artefact, self._held = artefact, held

    @abstractmethod
    def decide(self, answer: Any, reference: R) -> Verdict:
        """The verdict; may raise `BadReference`, `PolicysFault` and `VerifierFailed`."""

    def reported(self, answer: Any) -> Any:
        """What `decide` gets; raises `NothingReported`. A text that says something by default."""
        if not isinstance(answer, str) or not answer.strip():
            raise NothingReported(f"no {self.artefact!r} was reported")
        return answer

    def doubt(self, reference: R) -> str | None:
        """Why a task with this reference cannot be scored; may raise as `decide`."""
        return None

    def score(self, episode: Episode) -> Verdict:
        """1.0 if it is right, else 0.0 or a share; raises `VerifierFailed`."""
        try:
            answer = self.reported(episode.outcome.artefacts.get(self.artefact))
            return self.decide(answer, self.reads.of(episode.task))
        except (NothingReported, PolicysFault) as error:
            return Verdict(value=0.0, cause=str(error))

    def check(self, task: Task) -> str | None:
        """Why the task cannot be scored, or None."""
        try:
            return self.doubt(self.reads.of(task))
        except BadReference as error:
            return str(error)
        except PolicysFault as error:
            return f"its reference takes too long to read ({error})"

    def oracle(self, task: Task) -> Json | None:
        """The reference's solution, as an agent would report it; None if it has none."""
        known = task.reference.get(self.solution)
        return None if known is None else {self.artefact: known}

    def close(self) -> None:
        """End the children."""
        for one in self._held:
            one.close()


class NothingReported(Exception):
    """The outcome has no such artefact, or something else under its name."""
