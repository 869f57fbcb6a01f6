"""What was found out about a task, kept beside its taskset.

    tasks.jsonl  ->  tasks.admission.json

A record holds for exactly one task (its hash), one kind (the hash of all its tasks: what is usual
depends on the others) and one basis (signals, their versions, the files that their options name,
and the options of admission). Anything else, and the task has to be admitted again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tradewind.types.record import Record
from tradewind.types.task import Task


class Failure(Record):
    """One thing that a task did not show."""

    rule: str
    """`scorable`, `oracle`, `agreement`, `guess`, `attack`, `majority`, `mutants`, `leak`, or
    `time`."""
    sentence: str


class Admission(Record):
    """Example: `Admission(task_id="t-7", task_hash="9f..", kind_hash="01..", verdicts=31)`."""

    task_id: str
    task_hash: str
    kind_hash: str
    failures: tuple[Failure, ...] = ()
    oracle: bool = False
    """Whether anybody knows a right answer. If not, nothing shows that the task can be solved."""
    guesses: int = 0
    """How many were tried."""
    undecided: int = 0
    """Guesses on which the verifier failed: it gave no reward, and no verdict either."""
    mutants: int = 0
    rejected: int = 0
    """How many of the mutants did not reach the maximum."""
    passed_mutants: tuple[str, ...] = ()
    """What was done to those that did."""
    verdicts: int = 0
    """Times that a signal was asked."""
    slowest_s: float = 0.0
    """Of the verdicts on anything but mutants."""

    @property
    def admitted(self) -> bool:
        """Whether the task may train."""
        return not self.failures


class Register(Record):
    """The file beside a taskset."""

    basis: str
    """Hash of everything but the tasks that a verdict can depend on."""
    composition: str
    """Version of the whole composition, for people."""
    signals: dict[str, str]
    """Version of each signal that took part."""
    options: dict[str, Any]
    """The thresholds, printed beside the result."""
    tasks: dict[str, Admission]

    def known(self, task: Task, kind_hash: str, basis: str) -> Admission | None:
        """What was found out earlier, if it still holds."""
        found = self.tasks.get(task.task_id)
        if found is None or basis != self.basis:
            return None
        current = (task_hash(task), kind_hash)
        return found if (found.task_hash, found.kind_hash) == current else None


def register_file(taskset: Path) -> Path:
    """Where the admissions of a taskset lie."""
    return taskset.with_name(f"{taskset.stem}.admission.json")


def read_register(taskset: Path) -> Register | None:
    """What is known; None if nothing is, or if the file is not one of ours."""
    try:
        return Register.model_validate_json(register_file(taskset).read_text(encoding="utf-8"))
    except (OSError, ValidationError, UnicodeDecodeError):
        return None  # it only saves work: without it the tasks are admitted again


def write_register(taskset: Path, register: Register) -> None:
    """Replace the file in one rename."""
    file = register_file(taskset)
    partial = file.with_name(f".{file.name}.{os.getpid()}.partial")
    partial.write_text(register.model_dump_json(indent=1) + "\n", encoding="utf-8")
    partial.replace(file)


def task_hash(task: Task) -> str:
    """16 hex digits of SHA-256 over the whole task, reference included."""
    return _hash(task.model_dump(mode="json"))


def kind_hashes(tasks: Iterable[Task]) -> dict[str, str]:
    """For each kind, a hash over its tasks, whatever their order."""
    hashes: dict[str, list[str]] = {}
    for task in tasks:
        hashes.setdefault(task.kind, []).append(task_hash(task))
    return {kind: _hash(sorted(found)) for kind, found in hashes.items()}


def files_in(options: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 of each file that the options of a signal name: a database, a list of answers."""
    found = {}
    for key, value in options.items():
        if isinstance(value, str | Path) and (path := Path(value)).is_file():
            with path.open("rb") as file:
                found[key] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def basis_of(parts: Mapping[str, Any]) -> str:
    """A hash over plain data."""
    return _hash(dict(parts))


def _hash(value: Any) -> str:
    canonical = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]
