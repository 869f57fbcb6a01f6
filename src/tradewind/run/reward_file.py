"""A reward from a file: the `[grader]` of a recipe, or `[[signals]]` alone.

In both, `{data}` stands for the folder of the taskset (or the one that the caller names), and
relative paths begin in the file's own folder, as they do in a run.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from tradewind.rewards.config import Composition
from tradewind.run.config import RunConfig, TasksConfig
from tradewind.run.recipe import fill_places, read_toml
from tradewind.run.sentences import recipe_error
from tradewind.types import UserError

BESIDE = "reward.toml"
"""What a taskset's reward is called if it lies beside it."""
FIX = "give a recipe with [[grader.signals]], or a file with [[signals]]"


@dataclass(frozen=True)
class RewardFile:
    """What a file says about the reward, and about the tasks if it is a recipe."""

    composition: Composition
    tasks: TasksConfig


def read_reward(file: Path, data: Path) -> RewardFile:
    """Read and check; raises `UserError` with a sentence for each fault."""
    tree = read_toml(file, "the reward's file", FIX)
    section = tree.get("grader", {}) if "signals" not in tree else tree
    signals = section.get("signals") if isinstance(section, dict) else None
    if signals is None:
        raise UserError("this file names no signals", value=str(file), fix=FIX)
    run = tree.get("run")
    seed = run.get("seed", RunConfig().seed) if isinstance(run, dict) else RunConfig().seed
    places = {
        "{data}": str(data.absolute()),
        "{seed}": str(seed),
        "{python}": sys.executable,
    }
    composition = fill_places({"signals": signals}, places)
    tasks = {k: v for k, v in (tree.get("tasks") or {}).items() if k in ("admit", "admission")}
    try:
        return RewardFile(
            Composition.model_validate(composition), TasksConfig.model_validate(tasks)
        )
    except ValidationError as error:
        raise recipe_error(error, Composition, str(file)) from error


def reward_beside(taskset: Path, named: Path | None) -> Path:
    """The named reward file, or the one that lies beside the taskset; raises `UserError`."""
    beside = taskset.parent / BESIDE
    if named is None and not beside.is_file():
        raise UserError(
            "nothing says what the reward of this taskset is made of",
            value=str(taskset),
            fix=f"give --reward FILE (a recipe will do), or write {beside}",
        )
    return named or beside
