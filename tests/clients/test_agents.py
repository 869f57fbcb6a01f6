"""Unmodified agents from PyPI finish tasks through the gateway, and a tiny model learns from them.

`learning.py` says what is compared in each step.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from learning import COLOURS, TASK, Painter, Played, demonstrate, learn
from phrases import call
from stand import Stand

FULL = bool(os.environ.get("TRADEWIND_FULL"))
STEPS, GROUPS, GAIN = (16, 8, 0.25) if FULL else (6, 4, 0.1)
DONE = call("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200 if FULL else 300)]


def _shell(colour: str) -> str:
    return call("bash", command=f"printf {colour} > wall.txt")


SHELL = tuple((_shell(colour), DONE) for colour in COLOURS)
PAINT = tuple((call("paint", colour=colour), "The wall is painted.") for colour in COLOURS)
GAMES = {
    "mini-swe-agent, chat": ("mini_swe.py", "chat", SHELL),
    "mini-swe-agent, messages": ("mini_swe.py", "messages", SHELL),
    "mini-swe-agent, responses": ("mini_swe.py", "responses", SHELL),
    "openai-agents, responses": ("openai_agent.py", "responses", PAINT),
    "openai-agents, chat": ("openai_agent.py", "chat", PAINT),
}
LEARNED = ("mini-swe-agent, chat", "openai-agents, responses")
"""In CI; all of them in full size."""


def painter(agents: Any, name: str) -> Painter:
    """An agent in a process that plays many rollouts at once."""
    script, dialect, moves = GAMES[name]

    def play(stand: Stand, folder: Path, n: int) -> list[Played]:
        leases = {lease.rollout_id: lease for lease in (stand.lease() for _ in range(n))}
        rollouts = []
        for rollout, lease in leases.items():
            (folder / rollout).mkdir()
            where = {"base_url": stand.url, "key": lease.model_key, "folder": str(folder / rollout)}
            rollouts.append({"name": rollout, "task": TASK, "dialect": dialect, **where})
        ended = agents[script].play(rollouts)
        walls = {rollout: folder / rollout / "wall.txt" for rollout in leases}
        return [
            Played(
                lease,
                walls[rollout].read_text() if walls[rollout].exists() else "",
                ended[rollout].get("error"),
            )
            for rollout, lease in leases.items()
        ]

    return Painter(dialect, moves, play)


@pytest.mark.parametrize("name", GAMES)
def test_unmodified_agent_finishes_its_task_and_its_second_turn_extends_the_first(
    name, agents, tmp_path
):
    shown = demonstrate(painter(agents, name), tmp_path)
    assert [len(one.turns) for one in shown] == [2, 2]


@pytest.mark.parametrize("name", GAMES if FULL else LEARNED)
def test_tiny_model_learns_from_the_rollouts_of_an_unmodified_agent(name, agents, tmp_path):
    found = learn(painter(agents, name), tmp_path, STEPS, GROUPS)
    assert found.after > found.before + GAIN, found
    if FULL:
        assert sum(found.rewards[-4:]) > sum(found.rewards[:4]) + 0.5, found
