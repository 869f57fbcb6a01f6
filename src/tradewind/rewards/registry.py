"""Which signal a configuration asks for, and whether it can score every task."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from tradewind.rewards.behaviour.effort import EffortOptions, WorkDone
from tradewind.rewards.behaviour.format import Format, FormatOptions
from tradewind.rewards.behaviour.length import Length, LengthOptions
from tradewind.rewards.behaviour.repeats import Repeats, RepeatsOptions
from tradewind.rewards.behaviour.toolerrors import ToolErrors, ToolErrorsOptions
from tradewind.rewards.config import SignalConfig
from tradewind.rewards.criteria.checked import CheckedSignal
from tradewind.rewards.criteria.options import CriterionOptions
from tradewind.rewards.foreign import ForeignSignal
from tradewind.rewards.functions import FunctionOptions, PythonFunction
from tradewind.rewards.judges.options import JudgeOptions
from tradewind.rewards.judges.signal import JudgeSignal
from tradewind.rewards.matches import Exact, MatchOptions, Numeric
from tradewind.rewards.mathematics import Math, MathOptions
from tradewind.rewards.monitor.exploits import Exploits, ExploitsOptions
from tradewind.rewards.options import ProcessOptions
from tradewind.rewards.programs import ProgramOptions, PythonProgram
from tradewind.rewards.puzzles import Puzzle, PuzzleOptions
from tradewind.rewards.repositories import Repository, RepositoryOptions
from tradewind.rewards.resultset import ResultSet, ResultSetOptions
from tradewind.rewards.schemas import JsonSchema, SchemaOptions
from tradewind.rewards.signal import Signal, VerifierFailed
from tradewind.types.config import Config
from tradewind.types.errors import UserError
from tradewind.types.task import Task


@dataclass(frozen=True)
class Use:
    """A built-in signal: what it takes and how it is opened."""

    options: type[Config]
    open: Callable[[Any], Signal]
    """Called with an instance of `options`; raises `UserError`."""


USES: dict[str, Use] = {
    "exact": Use(MatchOptions, Exact),
    "json-schema": Use(SchemaOptions, JsonSchema),
    "math": Use(MathOptions, Math),
    "numeric": Use(MatchOptions, Numeric),
    "pytest": Use(RepositoryOptions, Repository),
    "python": Use(FunctionOptions, PythonFunction),
    "reasoning-gym": Use(PuzzleOptions, Puzzle),
    "checked": Use(CriterionOptions, CheckedSignal),
    "effort": Use(EffortOptions, WorkDone),
    "exploits": Use(ExploitsOptions, Exploits),
    "format": Use(FormatOptions, Format),
    "length": Use(LengthOptions, Length),
    "repeats": Use(RepeatsOptions, Repeats),
    "tool-errors": Use(ToolErrorsOptions, ToolErrors),
    "judge": Use(JudgeOptions, JudgeSignal),
    "resultset": Use(ResultSetOptions, ResultSet),
    "stdio": Use(ProgramOptions, PythonProgram),
}


def open_signal(config: SignalConfig) -> Signal:
    """The signal that `config.use` names.

    Raises `UserError` if there is none of that name, or if its options do not work.
    """
    if ":" in config.use:
        return ForeignSignal(config.use, read_options(config, ProcessOptions))
    if config.use not in USES:
        raise UserError(
            f"signal {config.name!r} uses something that does not exist",
            value=config.use,
            fix=f"use one of {', '.join(sorted(USES))}, or path/to/file.py:object",
        )
    use = USES[config.use]
    return use.open(read_options(config, use.options))


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


def check_tasks(signal: Signal, tasks: Iterable[Task]) -> int:
    """How many tasks there are, all of which the signal can score.

    Raises `UserError` that names the first task it cannot score and how many others there are.
    """
    faults: list[tuple[str, str]] = []
    n = 0
    for n, task in enumerate(tasks, start=1):  # noqa: B007  the count is the result
        try:
            fault = signal.check(task)
        except VerifierFailed as error:
            fault = str(error)
        if fault is not None:
            faults.append((task.task_id, fault))
    if faults:
        task_id, fault = faults[0]
        others = f" ({len(faults) - 1} more tasks cannot be scored either)" if faults[1:] else ""
        raise UserError(
            f"the grader cannot score task {task_id}: {fault}{others}",
            fix="correct or remove these tasks in the taskset",
        )
    return n
