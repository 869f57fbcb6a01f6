"""Harbor task folders, in their published format (schema 1.x).

    my-task/
      task.toml          [metadata], [agent] timeout_sec, [verifier] timeout_sec, [environment]
      instruction.md     what the agent is told
      environment/       Dockerfile or image: where agent and verifier run
      tests/test.sh      writes /logs/verifier/reward.json or reward.txt
      solution/          never read here

The `harbor` package needs Python 3.12; the folders do not, so they are read as they are. Containers
are the customer's: `HarborTasks` is given a function that starts one and runs the agent in it.
"""

from __future__ import annotations

import asyncio
import json
import math
import tomllib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tradewind.envs.protocol import Policy
from tradewind.types.errors import UserError
from tradewind.types.outcome import Outcome, OutcomeStatus
from tradewind.types.record import Json
from tradewind.types.task import Split, Task

REWARD_FILES = ("reward.json", "reward.txt")
"""In the order of preference."""
_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class HarborTask:
    """One folder."""

    name: str
    folder: Path
    instruction: str
    config: Json
    """The whole of task.toml."""

    @property
    def agent_s(self) -> float:
        """How long the agent may take, in seconds."""
        return float(self.config.get("agent", {}).get("timeout_sec", _TIMEOUT_S))

    @property
    def verifier_s(self) -> float:
        """How long tests/test.sh may take, in seconds."""
        return float(self.config.get("verifier", {}).get("timeout_sec", _TIMEOUT_S))

    @property
    def kind(self) -> str:
        """The category, or `harbor`."""
        return str(self.config.get("metadata", {}).get("category") or "harbor")


class Box(Protocol):
    """A container in which a task is worked on."""

    logs: Path
    """The host's side of /logs/verifier."""

    async def work(self, instruction: str, policy: Policy) -> None:
        """Run the agent."""

    async def verify(self, tests: Path) -> int:
        """Put `tests` at /tests and run /tests/test.sh; its exit status."""


OpenBox = Callable[[HarborTask], AbstractAsyncContextManager[Box]]
"""Starts a container for a task and removes it afterwards."""


class HarborTasks:
    """A folder of task folders."""

    version = "1"
    name = "harbor"

    def __init__(self, folder: Path | str, open_box: OpenBox) -> None:
        """Raises `UserError` for a folder that is none, or a task that does not read."""
        self._tasks = {task.name: task for task in read_tasks(Path(folder))}
        self._open_box = open_box

    def tasks(self, split: Split = Split.TRAIN) -> Iterator[Task]:
        """One task per folder. What the agent is told is all of the input."""
        for task in self._tasks.values():
            yield Task(
                task_id=task.name,
                kind=task.kind,
                split=split,
                input={"name": task.name, "instruction": task.instruction},
                reference={},
            )

    async def rollout(self, task: Json, policy: Policy) -> Outcome:
        """Work in a fresh container, verify there, report the reward file.

        Tests that cannot be run, or leave no reward that is a number, are GRADER_ERROR.
        """
        harbor = self._tasks[task["name"]]
        async with self._open_box(harbor) as box:
            status = OutcomeStatus.COMPLETED
            try:
                await _within(box.work(harbor.instruction, policy), harbor.agent_s)
            except TimeoutError:
                status = OutcomeStatus.AGENT_LIMIT
            for name in REWARD_FILES:
                (box.logs / name).unlink(missing_ok=True)  # what the agent left there is no verdict
            try:
                await _within(box.verify(harbor.folder / "tests"), harbor.verifier_s)
                rewards = read_reward(box.logs)
            except (TimeoutError, ValueError) as error:
                detail = str(error) or f"tests/test.sh took over {harbor.verifier_s:g} s"
                return Outcome(status=OutcomeStatus.GRADER_ERROR, detail=detail)
        return Outcome(status=status, artefacts={"rewards": rewards})

    def score(self, task: Json, outcome: Json) -> float:
        """The reward named `reward`, or the mean of all."""
        rewards = outcome["artefacts"]["rewards"]
        return float(rewards.get("reward", sum(rewards.values()) / len(rewards)))


async def _within(work: Awaitable[Any], seconds: float) -> None:
    await asyncio.wait_for(work, seconds)


def read_tasks(folder: Path) -> list[HarborTask]:
    """The task folders in a folder, or the folder itself if it is one, by name."""
    if (folder / "task.toml").is_file():
        return [_read(folder)]
    found = sorted(path.parent for path in folder.glob("*/task.toml"))
    if not found:
        raise UserError(
            "there is no Harbor task here", value=str(folder), fix="each has a task.toml"
        )
    return [_read(path) for path in found]


def read_reward(logs: Path) -> dict[str, float]:
    """The rewards by name that tests/test.sh wrote; raises `ValueError` with the cause if none."""
    for name in REWARD_FILES:
        file = logs / name
        if not file.is_file():
            continue
        text = file.read_text(encoding="utf-8").strip()
        found = json.loads(text) if name.endswith(".json") else {"reward": float(text)}
        if not isinstance(found, dict) or not found:
            raise ValueError(f"{name} holds no object of rewards")
        rewards = {str(key): float(value) for key, value in found.items()}
        if not all(map(math.isfinite, rewards.values())):
            raise ValueError(f"{name} holds a reward that is not finite")
        return rewards
    raise ValueError("tests/test.sh left neither reward.json nor reward.txt")


def _read(folder: Path) -> HarborTask:
    try:
        config = tomllib.loads((folder / "task.toml").read_text(encoding="utf-8"))
        instruction = (folder / "instruction.md").read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UserError(
            f"this Harbor task does not read ({error})",
            value=str(folder),
            fix="it needs task.toml and instruction.md",
        ) from error
    if not (folder / "tests" / "test.sh").is_file():
        raise UserError(
            "this Harbor task has no verifier", value=str(folder), fix="add tests/test.sh"
        )
    return HarborTask(folder.name, folder, instruction.strip(), config)
