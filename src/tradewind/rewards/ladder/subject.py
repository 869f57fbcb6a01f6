"""What signals are measured on: answers, stored or made, and what is known about each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tradewind.rewards.admission.bench import MUTANT, known_of
from tradewind.rewards.admission.guesses import guesses
from tradewind.rewards.admission.mutants import mutants
from tradewind.rewards.attacks.catalogue import known_attacks
from tradewind.rewards.config import Composition
from tradewind.rewards.ladder.labels import majority
from tradewind.rewards.panel import Panel
from tradewind.types.episode import Episode
from tradewind.types.outcome import Outcome, OutcomeStatus
from tradewind.types.record import Json
from tradewind.types.task import Task

RIGHT = "oracle"


@dataclass(frozen=True)
class Subject:
    """One answer."""

    episode: Episode
    group: str | None = None
    """Answers of one group are compared with each other in training; None for made ones."""
    made: str | None = None
    """How it was made: `oracle`, `mutant`, a guess's kind; None for a stored rollout."""
    against: str | None = None
    """The `use` that it attacks; None for an answer that any signal may be shown."""
    truth: bool | None = None
    """Whether it is right, where that is known from how it was made."""
    labels: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """What each person said, by the signal that they were asked about; "" is the result as a
    whole."""

    def said(self, about: str) -> bool | None:
        """What most people said of it; None if that is nothing."""
        return majority(self.labels.get(about, ()))


def made_subjects(tasks: Iterable[Task], panel: Panel | None, n_mutants: int) -> list[Subject]:
    """Answers of known truth for each task that the verifiable signals can score.

    The oracle is right and guesses are wrong. Mutants are nearly always wrong, but an error may
    change nothing, so their truth is left to a more verifiable signal.
    """
    found: list[Subject] = []
    for task in tasks:
        oracle, result = (None, None) if panel is None else known_of(task, panel)
        if oracle is not None:
            found.append(made(task, RIGHT, oracle, truth=True))
            for mutant in mutants(oracle, n_mutants):
                found.append(made(task, MUTANT, mutant.artefacts))
        for guess in guesses(task, oracle, result):
            found.append(made(task, guess.kind, guess.artefacts, truth=False))
    return found


def made(task: Task, how: str, artefacts: Json, truth: bool | None = None) -> Subject:
    """A made answer as a worker would have reported it."""
    outcome = Outcome(status=OutcomeStatus.COMPLETED, artefacts=artefacts)
    name = f"{task.task_id}:{how}"
    episode = Episode(rollout_id=name, task=task, outcome=outcome)
    return Subject(episode, made=how, truth=truth)


def attack_subjects(
    tasks: Iterable[Task], composition: Composition, *, slow: bool = False
) -> list[Subject]:
    """Known attacks on each verifier of a composition, on each task; slow ones only if asked."""
    chosen = list(tasks)
    return [
        replace(
            made(task, f"attack {attack.name}", attack.artefacts(task), truth=False), against=use
        )
        for use in dict.fromkeys(signal.use for signal in composition.signals)
        for attack in known_attacks(use)
        if slow or not attack.slow
        for task in chosen
    ]


def grouped(subjects: Iterable[Subject]) -> Iterator[list[int]]:
    """Positions of the answers of each group."""
    found: dict[str, list[int]] = {}
    for at, subject in enumerate(subjects):
        if subject.group is not None:
            found.setdefault(subject.group, []).append(at)
    yield from found.values()
