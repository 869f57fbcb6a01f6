"""Which signal a configuration asks for, and whether it can score every task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from tradewind.rewards.behaviour.effort import WorkDone
from tradewind.rewards.behaviour.format import Format
from tradewind.rewards.behaviour.length import Length
from tradewind.rewards.behaviour.repeats import Repeats
from tradewind.rewards.behaviour.toolerrors import ToolErrors
from tradewind.rewards.config import SignalConfig
from tradewind.rewards.criteria.checked import CheckedSignal
from tradewind.rewards.foreign import ForeignSignal
from tradewind.rewards.functions import PythonFunction
from tradewind.rewards.judges.signal import JudgeSignal
from tradewind.rewards.matches import Exact, Numeric
from tradewind.rewards.mathematics import Math
from tradewind.rewards.monitor.exploits import Exploits
from tradewind.rewards.programs import PythonProgram
from tradewind.rewards.puzzles import Puzzle
from tradewind.rewards.repositories import Repository
from tradewind.rewards.resultset import ResultSet
from tradewind.rewards.schemas import JsonSchema
from tradewind.rewards.signal import Signal, VerifierFailed
from tradewind.types.config import Config
from tradewind.types.errors import UserError
from tradewind.types.task import Task

USES: dict[str, type[Signal]] = {
    "checked": CheckedSignal,
    "effort": WorkDone,
    "exact": Exact,
    "exploits": Exploits,
    "format": Format,
    "json-schema": JsonSchema,
    "judge": JudgeSignal,
    "length": Length,
    "math": Math,
    "numeric": Numeric,
    "pytest": Repository,
    "python": PythonFunction,
    "reasoning-gym": Puzzle,
    "repeats": Repeats,
    "resultset": ResultSet,
    "stdio": PythonProgram,
    "tool-errors": ToolErrors,
}
"""The built-in signals by the name that `use` gives."""


def open_signal(config: SignalConfig) -> Signal:
    """The signal that `config.use` names.

    Raises `UserError` if there is none of that name, or if its options do not work.
    """
    if ":" in config.use:
        return ForeignSignal(config.use, read_options(config, ForeignSignal.takes))
    if config.use not in USES:
        raise UserError(
            f"signal {config.name!r} uses something that does not exist",
            value=config.use,
            fix=f"use one of {', '.join(sorted(USES))}, or path/to/file.py:object",
        )
    use = USES[config.use]
    return use(read_options(config, use.takes))


def read_options(config: SignalConfig, model: type[Config]) -> Any:
    """`config.options` as an instance of `model`; raises `UserError` that names the key."""
    try:
        return model.model_validate(config.options)
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(map(str, fault['loc'])) or 'options'}: {fault['msg']}"
            for fault in error.errors()
        )
        raise UserError(
            f"the options of signal {config.name!r} do not work ({faults})",
            value=config.options,
            fix=f"known keys are {', '.join(model.model_fields)}",
        ) from error


def fault_of(signal: Signal, task: Task) -> str | None:
    """Why the signal cannot score the task, or None."""
    try:
        return signal.check(task)
    except VerifierFailed as error:
        return str(error)


def check_tasks(signal: Signal, tasks: Sequence[Task]) -> None:
    """Raises `UserError` that names the first task it cannot score and counts the others."""
    faults = [(t.task_id, fault) for t in tasks if (fault := fault_of(signal, t)) is not None]
    if faults:
        task_id, fault = faults[0]
        others = f" ({len(faults) - 1} more tasks cannot be scored either)" if faults[1:] else ""
        raise UserError(
            f"the grader cannot score task {task_id}: {fault}{others}",
            fix="correct or remove these tasks in the taskset",
        )
