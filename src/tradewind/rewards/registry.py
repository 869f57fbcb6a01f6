"""Which verifier a configuration asks for, and whether it can score every task."""

from __future__ import annotations

from collections.abc import Iterable

from tradewind.rewards.config import RewardConfig
from tradewind.rewards.foreign import ForeignReward
from tradewind.rewards.resultset import ResultSet
from tradewind.rewards.reward import Reward, VerifierFailed
from tradewind.types.errors import UserError
from tradewind.types.task import Task

BUILT_IN = {"resultset": ResultSet}


def open_reward(config: RewardConfig) -> Reward:
    """The verifier named `config.reward`; raises `UserError` if there is none of that name."""
    if config.reward in BUILT_IN:
        return BUILT_IN[config.reward](config)
    if ":" in config.reward:
        return ForeignReward(config.reward, config)
    raise UserError(
        "there is no verifier of that name",
        value=config.reward,
        fix=f"use one of {', '.join(BUILT_IN)}, or path/to/file.py:object",
    )


def check_tasks(reward: Reward, tasks: Iterable[Task]) -> int:
    """Admission: how many tasks there are, all of which the verifier can score.

    Raises `UserError` that names the first task it cannot score and how many others there are.
    """
    faults: list[tuple[str, str]] = []
    n = 0
    for n, task in enumerate(tasks, start=1):  # noqa: B007  the count is the result
        try:
            fault = reward.check(task)
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
