"""A verifier of your own, `path/to/file.py:object`, run in a killable child.

The file belongs to whoever owns the run, so its verdict is believed; the child is there for its
crashes and endless loops, which become `VerifierFailed` and, after a retry, a null.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from pydantic import ValidationError

from tradewind.rewards import foreign_child
from tradewind.rewards.options import ProcessOptions
from tradewind.rewards.sandbox.box import Box
from tradewind.rewards.sandbox.level import Level
from tradewind.rewards.sandbox.process import KillableProcess, NoAnswer
from tradewind.rewards.signal import Kind, Signal, Verdict, VerifierFailed
from tradewind.types.episode import Episode
from tradewind.types.errors import UserError
from tradewind.types.record import Json
from tradewind.types.task import Task

_START_S = 60.0
"""Longest that the import of the file may take."""


class ForeignSignal(Signal):
    """The `object` of a file: a function or an object with `score`.

    `score(task: dict, outcome: dict)` returns a number, or None for "not its fault"; `version`,
    `check(task)` and `oracle(task)` are used if the object has them; without a `version` it is 12
    hex digits of SHA-256 over the file, so that a verdict can be traced to the code that gave it.
    """

    takes = ProcessOptions
    kind = Kind.CHECK

    def __init__(self, entry: str, config: ProcessOptions) -> None:
        """Raises `UserError` if the file or the object is not there or does not import."""
        file, _, attribute = entry.partition(":")
        path = Path(file)
        if not path.is_file():
            raise UserError(
                "the verifier's file does not exist", value=file, fix="check the signal's `use`"
            )
        self._entry, self._deadline = entry, config.deadline_s
        ours = [Path(folder) for folder in sys.path if folder]
        self._process = KillableProcess(
            Box(Level.L1, config.limits(), packages=ours, confined=False),
            Path(foreign_child.__file__),
            str(path.resolve()),
            attribute,
        )
        about = self._about()
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
        self.version = str(about["version"] or digest)

    def score(self, episode: Episode) -> Verdict:
        """What the object's `score` says."""
        answer = self._ask(
            {
                "ask": "score",
                "task": episode.task.model_dump(mode="json"),
                "outcome": episode.outcome.model_dump(mode="json"),
            }
        )
        try:
            return Verdict(value=answer["value"], cause=answer.get("cause"))
        except (KeyError, ValidationError) as error:
            what = f"{answer.get('value', answer)!r:.80}"
            raise VerifierFailed(
                f"{self._entry} returned {what}; a verdict is a finite number, or None and a cause"
            ) from error

    def check(self, task: Task) -> str | None:
        """What the object's `check` says, if it has one."""
        answer = self._ask({"ask": "check", "task": task.model_dump(mode="json")})
        return answer.get("cause")

    def oracle(self, task: Task) -> Json | None:
        """What the object's `oracle(task)` reports, if it has one: artefacts of a right answer."""
        return self._ask({"ask": "oracle", "task": task.model_dump(mode="json")}).get("artefacts")

    def close(self) -> None:
        """End the child."""
        self._process.close()

    def _about(self) -> Json:
        try:
            about = self._process.ask({"ask": "about"}, _START_S)
        except NoAnswer as error:
            about = {"error": str(error)}
        if "error" in about:
            self.close()
            raise UserError(
                f"the verifier cannot be loaded ({about['error']})",
                value=self._entry,
                fix="write `use` as path/to/file.py:object, with a score(task, outcome)",
            )
        return about

    def _ask(self, question: Json) -> Json:
        try:
            answer = self._process.ask(question, self._deadline)
        except NoAnswer as error:
            late = f"it gave no answer within {self._deadline:g} s (`deadline_s` of its options)"
            raise VerifierFailed(f"{self._entry}: {late if error.timed_out else error}") from error
        if "error" in answer:
            raise VerifierFailed(f"{self._entry}: {answer['error']}")
        return answer
