"""One TOML file that says everything about a run, and how it is read.

Relative paths in a recipe are relative to the recipe's folder, in which every process of the run
works. In every text, `{data}` is the run's data folder, `{seed}` its seed, `{python}` the running
interpreter.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError, model_validator

from tradewind.controller.config import ControllerConfig
from tradewind.gateway.config import GatewayConfig
from tradewind.grader.config import GraderConfig
from tradewind.pool.config import PoolConfig
from tradewind.run.config import (
    ControlConfig,
    CorpusConfig,
    EnvConfig,
    EvalConfig,
    LaunchConfig,
    ModelConfig,
    RunConfig,
    TasksConfig,
    UsersConfig,
)
from tradewind.run.sentences import recipe_error
from tradewind.trainer.config import MidtrainConfig, TrainerConfig
from tradewind.types import UserError
from tradewind.types.config import Config
from tradewind.worker.config import WorkerConfig

SHARED_KEYS = ("groups_per_step", "max_staleness")
"""Said once, in `[trainer]`; the controller takes them over."""


class Recipe(Config):
    """A whole run. Each section is documented where the code that it configures lies."""

    run: RunConfig = RunConfig()
    """What the run is called."""
    model: ModelConfig
    """The base checkpoint."""
    tasks: TasksConfig = TasksConfig()
    """What is asked."""
    corpus: CorpusConfig = CorpusConfig()
    """What is read in mid-training."""
    env: EnvConfig
    """The product and its agent."""
    controller: ControllerConfig = ControllerConfig()
    """Groups, leases, staleness."""
    gateway: GatewayConfig = GatewayConfig()
    """The endpoint for agents and users."""
    pools: tuple[PoolConfig, ...] = (PoolConfig(name="here"),)
    """Who samples; one `[[pools]]` each. Without any: one, on this machine's CPU."""
    worker: WorkerConfig = WorkerConfig()
    """The customer's side."""
    grader: GraderConfig = GraderConfig()
    """Verifiers."""
    midtrain: MidtrainConfig = MidtrainConfig()
    """Next-token training; a recipe without this table has none."""
    trainer: TrainerConfig = TrainerConfig()
    """Reinforcement learning."""
    users: UsersConfig = UsersConfig()
    """Chats of the product's own users."""
    control: ControlConfig = ControlConfig()
    """RL without mid-training, for comparison."""
    eval: EvalConfig = EvalConfig()
    """Held-out evaluation."""
    launch: LaunchConfig = LaunchConfig()
    """Processes on this machine."""

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Recipe:
        if not self.pools:
            raise ValueError(
                "pools is empty, so nobody would sample; leave it out, or write [[pools]]"
            )
        names = [pool.name for pool in self.pools]
        if len(set(names)) < len(names):
            raise ValueError(f"two [[pools]] have the same name ({', '.join(names)})")
        if self.run.ledger and self.control.steps and not self.control.ledger:
            raise ValueError(
                "[run] ledger names a database and [control] ledger none; name another one for the"
                " control arm, or set its steps to 0"
            )
        for key in SHARED_KEYS:
            ours, theirs = getattr(self.controller, key), getattr(self.trainer, key)
            if ours != theirs:
                raise ValueError(
                    f"[controller] {key} is {ours} and [trainer] {key} is {theirs}; set the"
                    " trainer's, the controller takes it over"
                )
        return self


def read_recipe(file: Path, overrides: Sequence[str] = (), runs: Path = Path("runs")) -> Recipe:
    """Read, override, fill in and check; raises UserError with a sentence for each fault."""
    tree = read_toml(
        file, "the recipe", "give the path of a TOML file, for example recipes/quickstart.toml"
    )
    for override in overrides:
        apply_override(tree, override)
    for section, key, default in (
        ("run", "name", file.stem),
        ("run", "seed", RunConfig().seed),
        ("tasks", "path", str(TasksConfig().path)),
        ("corpus", "path", str(CorpusConfig().path)),
    ):
        if isinstance(table := tree.setdefault(section, {}), dict):
            table.setdefault(key, default)
    tree.setdefault("midtrain", {"steps": 0})
    _share(tree)
    if isinstance(run := tree["run"], dict):
        places = {"{data}": str((runs / str(run["name"]) / "data").absolute())}
        places |= {"{seed}": str(run["seed"]), "{python}": sys.executable}
        tree = fill_places(tree, places)
    try:
        return Recipe.model_validate(tree)
    except ValidationError as error:
        raise recipe_error(error, Recipe, str(file)) from error


def read_toml(file: Path, what: str, fix: str) -> dict[str, Any]:
    """The tree of a TOML file; raises `UserError`, which calls the file `what`."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(
            f"{what} cannot be read ({error.strerror})", value=str(file), fix=fix
        ) from error
    except ValueError as error:  # TOML syntax, or an encoding that is not UTF-8
        raise UserError(
            f"{what} is not valid TOML ({error})", value=str(file), fix="correct that line"
        ) from error


def _share(tree: dict[str, Any]) -> None:
    trainer, controller = tree.get("trainer", {}), tree.setdefault("controller", {})
    if isinstance(trainer, dict) and isinstance(controller, dict):
        for key in SHARED_KEYS:
            controller.setdefault(key, trainer.get(key, TrainerConfig.model_fields[key].default))


def fill_places(value: Any, places: Mapping[str, str]) -> Any:
    """Replace the placeholders in every text of a tree."""
    match value:
        case str():
            for place, text in places.items():
                value = value.replace(place, text)
            return value
        case list():
            return [fill_places(inner, places) for inner in value]
        case dict():
            return {key: fill_places(inner, places) for key, inner in value.items()}
    return value


def apply_override(tree: dict[str, Any], override: str) -> None:
    """Set `section.key=value` in a TOML tree; the value is TOML, or a string if it is not.

    `pools.0.threads=1` reaches into a list. Raises UserError for an override without `=` or a
    path through something that is not a table.
    """
    path, equals, written = override.partition("=")
    parts = path.strip().split(".")
    if not equals or not all(parts):
        raise UserError(
            "an override must look like section.key=value",
            value=override,
            fix="for example --set trainer.steps=3",
        )
    at: Any = tree
    for part in parts[:-1]:
        at = _step_into(at, part, override)
    if isinstance(at, list):
        raise _no_such_place(override)
    at[parts[-1]] = _toml_value(written.strip())


def _step_into(at: Any, part: str, override: str) -> Any:
    if isinstance(at, dict):
        found = at.setdefault(part, {})
        if isinstance(found, dict | list):
            return found
    elif isinstance(at, list) and part.isdigit() and int(part) < len(at):
        return at[int(part)]
    raise _no_such_place(override)


def _no_such_place(override: str) -> UserError:
    return UserError(
        "the override does not lead to a key",
        value=override,
        fix="write section.key=value, or pools.0.key=value for the first pool",
    )


def _toml_value(written: str) -> Any:
    try:
        return tomllib.loads(f"value = {written}")["value"]
    except tomllib.TOMLDecodeError:
        return written
