"""What a customer writes: a function or class that plays a task with an unmodified agent.

async def rollout(task: dict, policy: Policy) -> Outcome:
    client = AsyncOpenAI(base_url=policy.base_url, api_key=policy.api_key)
    ...
    return Outcome(status="completed", artefacts={"sql": sql})

Or a class, made once per worker without arguments, with the same as a method `rollout`.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any

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
AGENT_ERROR), and ENV_ERROR, GRADER_ERROR or INFRA_ERROR only for what the policy cannot cause.
`raise AgentFailed("...")` says AGENT_ERROR; any other exception counts as ENV_ERROR with its text
as detail, except what the model endpoint answers (`envs.play.classify`).
"""

DEFAULT_NAME = "rollout"


class AgentFailed(Exception):
    """The agent's code failed on what the policy said: graded, since the policy caused it."""


def load_env(entry: str) -> Env:
    """The environment named by `path/to/file.py[:name]` or `package.module[:name]`.

    The name is that of an async function, of an object with an async method `rollout`, or of a
    class of such objects. Without a name it is `rollout`, or the file's only such class.

    Raises `UserError` with a sentence if the file, the module or the name is not there, if the
    import or the making of the object fails, or if it is none of these.
    """
    place, _, name = entry.partition(":")
    if not place:
        raise UserError(
            "this does not name an environment",
            value=entry,
            fix="write path/to/env.py or package.module, and :name if it is not `rollout`",
        )
    module = _import(place, entry)
    found = getattr(module, name or DEFAULT_NAME, None)
    if found is None and not name:
        found = _only_class(module)
    if found is None:
        raise UserError(
            f"{place} has no {name or DEFAULT_NAME!r}",
            value=entry,
            fix=f"define `async def {name or DEFAULT_NAME}(task, policy)` in it",
        )
    return _as_env(found, entry)


def _as_env(found: Any, entry: str) -> Env:
    if inspect.isclass(found):
        try:
            found = found()
        except Exception as error:  # boundary: the customer's class may do anything
            raise UserError(
                f"the environment's class cannot be made ({type(error).__name__}: {error})",
                value=entry,
                fix="let its __init__ work without arguments",
            ) from error
    for candidate in (found, getattr(found, DEFAULT_NAME, None)):
        if inspect.iscoroutinefunction(candidate):
            env: Env = candidate
            return env
    raise UserError(
        f"this is not an async function, nor an object with an async method {DEFAULT_NAME!r}",
        value=entry,
        fix=f"write `async def {DEFAULT_NAME}(task, policy)`",
    )


def _only_class(module: ModuleType) -> type | None:
    """The one class of the module itself that has an async `rollout`; None if there is not one."""
    classes = [
        value
        for value in vars(module).values()
        if inspect.isclass(value)
        and value.__module__ == module.__name__
        and inspect.iscoroutinefunction(getattr(value, DEFAULT_NAME, None))
    ]
    return classes[0] if len(classes) == 1 else None


def _import(place: str, entry: str) -> ModuleType:
    try:
        if place.endswith(".py"):
            return _import_file(Path(place), entry)
        return importlib.import_module(place)
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # boundary: the customer's module may do anything
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


def main(argv: list[str]) -> int:
    """`python -m tradewind.envs.protocol ENTRY`: whether it can be loaded; 2 with a sentence."""
    try:
        load_env(argv[0])
    except UserError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
