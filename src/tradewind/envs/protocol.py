"""What a customer writes: one async function that plays a task with an unmodified agent.

async def rollout(task: dict, policy: Policy) -> Outcome:
    client = AsyncOpenAI(base_url=policy.base_url, api_key=policy.api_key)
    ...
    return Outcome(status="completed", artefacts={"sql": sql})
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType

from tradewind.types.errors import UserError
from tradewind.types.outcome import Outcome
from tradewind.types.record import Json, Record


class Policy(Record):
    """Where the model is. The agent needs nothing else, and gets nothing else."""

    base_url: str
    """An OpenAI-compatible endpoint, `/v1` included; the same for every rollout."""
    api_key: str
    """Names the rollout; dead when the rollout is over."""
    model: str
    """The name to ask for."""
    deadline: float
    """Unix seconds; then the rollout is ended as it stands, without artefacts."""


Env = Callable[[Json, Policy], Awaitable[Outcome]]
"""Plays one rollout: the task's `input` and a policy to an outcome.

It should return what came of the agent's work whatever the policy said (COMPLETED, AGENT_LIMIT,
AGENT_ERROR), and ENV_ERROR or INFRA_ERROR only for what the policy cannot cause. An exception
counts as ENV_ERROR with its text as detail.
"""


def load_env(entry: str) -> Env:
    """The function named by `package.module:function` or `path/to/file.py:function`.

    Raises `UserError` with a sentence if the file, the module or the function is not there, if
    the import fails, or if it is no async function.
    """
    place, _, name = entry.partition(":")
    if not place or not name:
        raise UserError(
            "this does not name an environment",
            value=entry,
            fix="write path/to/env.py:rollout or package.module:rollout",
        )
    module = _import(place, entry)
    function = getattr(module, name, None)
    if function is None:
        raise UserError(
            f"{place} has no {name!r}",
            value=entry,
            fix=f"define `async def {name}(task, policy)` in it",
        )
    if not inspect.iscoroutinefunction(function):
        raise UserError(
            f"{name!r} in {place} is not an async function",
            value=entry,
            fix=f"write `async def {name}(task, policy)`",
        )
    env: Env = function
    return env


def _import(place: str, entry: str) -> ModuleType:
    try:
        if place.endswith(".py"):
            return _import_file(Path(place), entry)
        return importlib.import_module(place)
    except UserError:
        raise
    except Exception as error:  # boundary: the customer's module may do anything
        raise UserError(
            f"the environment cannot be imported ({type(error).__name__}: {error})",
            value=entry,
            fix="install what it needs, or add its folder to PYTHONPATH",
        ) from error


def _import_file(file: Path, entry: str) -> ModuleType:
    """Import a file under its full name, so that its own absolute imports work."""
    if not file.is_file():
        raise UserError(
            "the environment's file does not exist",
            value=entry,
            fix="check the path before the colon",
        )
    folder, parts = file.resolve().parent, [file.stem]
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    return importlib.import_module(".".join(parts))
