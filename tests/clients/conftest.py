"""Interpreters and packages of the clients; `make test` prepares both and names them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
WAIT_S = 100


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Tiny models are slower with two threads."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def agents_python() -> str:
    """A Python that has the agents; they pin other versions than we do."""
    path = os.environ.get("TRADEWIND_AGENTS_PYTHON")
    assert path, "TRADEWIND_AGENTS_PYTHON is not set: `make test` makes its environment"
    return path


class Agents:
    """A process that plays rollouts with one agent."""

    def __init__(self, python: str, script: str, folder: Path) -> None:
        own = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "ANTHROPIC_"))}
        quiet = {
            "MSWEA_SILENT_STARTUP": "1",
            "MSWEA_COST_TRACKING": "ignore_errors",
            "MSWEA_GLOBAL_CONFIG_DIR": str(folder),
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }
        self._log = (folder / f"{script}.log").open("w+")
        self._process = subprocess.Popen(
            [python, str(HERE / "agents" / script)],
            env={**own, **quiet},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def play(self, rollouts: list[dict[str, Any]]) -> dict[str, Any]:
        """All at once; what came of each, by name: its `result`, or the `error` it died of."""
        assert self._process.stdin is not None and self._process.stdout is not None
        late = threading.Timer(WAIT_S, self._process.kill)
        late.start()
        for rollout in rollouts:
            self._process.stdin.write(json.dumps(rollout) + "\n")
        self._process.stdin.flush()
        found = {}
        for _ in rollouts:
            line = self._process.stdout.readline()
            assert line, f"the agents' process ended: {self._said()}"
            answer = json.loads(line)
            found[answer["name"]] = answer
        late.cancel()
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._log.close()

    def _said(self) -> str:
        self._log.seek(0)
        return self._log.read()[-3000:]


@pytest.fixture(scope="module")
def agents(agents_python, tmp_path_factory) -> Iterator[dict[str, Agents]]:
    """One process for each agent, for all tests of a file."""
    folder = tmp_path_factory.mktemp("agents")
    scripts = ("mini_swe.py", "openai_agent.py")
    started = {script: Agents(agents_python, script, folder) for script in scripts}
    yield started
    for process in started.values():
        process.close()
