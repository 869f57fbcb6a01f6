"""What was found out about a task, kept beside its taskset.

    tasks.jsonl  ->  tasks.admission.json

A record holds for exactly one task (its hash, files that its reference names included), one kind
(the hash of all its tasks: what is usual depends on the others) and one basis (signals, their
versions, the files that their options name, and the options of admission). Anything else, and the
task has to be admitted again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from tradewind.rewards.admission.leaves import leaves
from tradewind.types.digest import digest_of
from tradewind.types.record import Json, Record
from tradewind.types.task import Task

_LONGEST_PATH = 1024


class Hashes(NamedTuple):
    """What an admission holds for."""

    task: str
    kind: str


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

    def known(self, task_id: str, now: Hashes, basis: str) -> Admission | None:
        """What was found out earlier, if it still holds."""
        found = self.tasks.get(task_id)
        if found is None or basis != self.basis:
            return None
        return found if (found.task_hash, found.kind_hash) == now else None


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


def hashes_of(tasks: Iterable[Task], folder: Path = Path()) -> dict[str, Hashes]:
    """For each task by its id, a hash over the whole of it and one over all tasks of its kind.

    Files that its reference names, from `folder` on, belong to it. 16 hex digits of SHA-256.
    """
    known = list(tasks)
    one, kinds = {}, dict[str, list[str]]()
    for task in known:
        whole = task.model_dump(mode="json")
        files = files_in(task.reference, folder)
        one[task.task_id] = digest_of([whole, files] if files else whole)
        kinds.setdefault(task.kind, []).append(one[task.task_id])
    of_kind = {kind: digest_of(sorted(found)) for kind, found in kinds.items()}
    return {task.task_id: Hashes(one[task.task_id], of_kind[task.kind]) for task in known}


def files_in(named: Json, folder: Path = Path()) -> dict[str, str]:
    """SHA-256 of each file that plain data names: a database, a list of answers."""
    found = {}
    for path, value in leaves(named):
        if not isinstance(value, str | Path) or not 0 < len(str(value)) < _LONGEST_PATH:
            continue
        with contextlib.suppress(OSError, ValueError):  # a name that no file can have
            about = (file := folder / value).stat()
            if stat.S_ISREG(about.st_mode):
                found[".".join(map(str, path))] = _digest(file, about.st_mtime_ns, about.st_size)
    return found


@functools.lru_cache(maxsize=1024)
def _digest(file: Path, _changed: int, _size: int) -> str:
    """Many tasks may name one large file."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
