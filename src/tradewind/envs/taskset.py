"""A taskset: a JSON-lines file of `Task` rows."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from tradewind.types.errors import UserError
from tradewind.types.task import Task

FAULTS_SHOWN = 3


def load_tasks(path: Path) -> list[Task]:
    """The tasks of a file, in its order. Empty lines are skipped.

    Raises `UserError` that names line and fault if the file is missing or unreadable, a row is
    no task, an id comes twice, or there is no task at all.
    """
    tasks: list[Task] = []
    faults: list[str] = []
    line_of: dict[str, int] = {}
    for number, line in enumerate(_read(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            task = Task.model_validate_json(line)
        except ValidationError as error:
            faults.append(f"line {number}: {_first_fault(error)}")
            continue
        if task.task_id in line_of:
            first = line_of[task.task_id]
            faults.append(f"line {number}: task_id {task.task_id!r} is already on line {first}")
            continue
        line_of[task.task_id] = number
        tasks.append(task)
    if faults:
        raise UserError(
            f"the taskset has {len(faults)} bad row{'s' if faults[1:] else ''} "
            f"({'; '.join(faults[:FAULTS_SHOWN])}{'; ...' if faults[FAULTS_SHOWN:] else ''})",
            value=str(path),
            fix="each line is one JSON object with task_id, input and reference; kind and split may"
            " be there",
        )
    if not tasks:
        raise UserError(
            "the taskset has no tasks", value=str(path), fix="write one task a line into it"
        )
    return tasks


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"the taskset cannot be read ({error.strerror})",
            value=str(path),
            fix="check [tasks] path, or make the file with [env] prepare",
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"the taskset is not UTF-8 text (byte {error.start})",
            value=str(path),
            fix="save it as UTF-8",
        ) from error


def _first_fault(error: ValidationError) -> str:
    fault = error.errors()[0]
    where = ".".join(map(str, fault["loc"]))
    return f"{where}: {fault['msg']}" if where else fault["msg"]
