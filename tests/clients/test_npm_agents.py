"""Claude Code and Codex as they come from npm: they start, paint a wall, and come to an end.

    agent's own process ◄─► gateway ◄─► a script that knows which tool of theirs paints,
                                        or a tiny model that learns which colour is wanted

Only in full size: each is a program of 250 MB that sends 30,000 characters and more of prompt.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from engines import Answering
from learning import COLOURS, TASK, Painter, Played, learn
from phrases import byte_model, call
from stand import Stand, standing

from tradewind.ledger.rollouts import LeasedRollout
from tradewind.render.renderer import Renderer
from tradewind.types import TurnState

FULL = bool(os.environ.get("TRADEWIND_FULL"))
LIMIT_S = 120
AT_ONCE = 4
STEPS, GROUPS, GAIN = 6, 2, 0.1
BUDGET = 512
"""Tokens of a rollout that learns: its moves are a handful of them."""
END = "The wall is painted."

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not FULL, reason="programs of 250 MB each; TRADEWIND_FULL=1 runs them"),
]


@dataclass(frozen=True)
class Agent:
    """How it is started, and what it is known to say."""

    dialect: str
    paints: Callable[[str], str]
    """Its own tool, called so that it paints."""
    start: Callable[[Stand, LeasedRollout, Path], tuple[list[str], dict[str, str]]]
    """Command and environment, given a folder for its own files."""
    replaced: tuple[str, ...]
    """What it asks for and does not get, each time."""
    rooms: int = 1
    """Of demonstrations; see `Painter`."""


def _prepared(variable: str) -> Path:
    path = os.environ.get(variable)
    assert path, f"{variable} is not set: `make test-all` prepares it"
    return Path(path).resolve()


def _claude(stand: Stand, lease: LeasedRollout, home: Path) -> tuple[list[str], dict[str, str]]:
    packages = _prepared("TRADEWIND_NPM_AGENTS") / "node_modules" / "@anthropic-ai"
    (program,) = packages.glob("claude-code-*/claude")
    command = [str(program), "-p", TASK, "--dangerously-skip-permissions"]
    quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
    where = {"ANTHROPIC_BASE_URL": stand.url, "ANTHROPIC_API_KEY": lease.model_key}
    return command, {**where, **quiet, "IS_SANDBOX": "1"}


def _codex(stand: Stand, lease: LeasedRollout, home: Path) -> tuple[list[str], dict[str, str]]:
    provider = f'name = "ours"\nbase_url = "{stand.url}/v1"\nenv_key = "OUR_KEY"\n'
    (home / "config.toml").write_text(
        'model = "policy"\nmodel_provider = "ours"\n[model_providers.ours]\n'
        f'{provider}wire_api = "responses"\n'
    )
    script = _prepared("TRADEWIND_NPM_AGENTS") / "node_modules/@openai/codex/bin/codex.js"
    node = _prepared("TRADEWIND_NODE") / "bin" / "node"
    options = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    command = [str(node), str(script), "exec", *options, TASK]
    return command, {"CODEX_HOME": str(home), "OUR_KEY": lease.model_key}


def _bash(colour: str) -> str:
    return call("Bash", command=f"printf {colour} > wall.txt", description="Paint")


def _exec_command(colour: str) -> str:
    return call("exec_command", cmd=f"printf {colour} > wall.txt")


AGENTS = {
    "Claude Code": Agent("messages", _bash, _claude, ("max_tokens",)),
    "Codex": Agent("responses", _exec_command, _codex, ("tools.namespace", "tools.web_search"), 2),
}


def run(
    agent: Agent, stand: Stand, lease: LeasedRollout, folder: Path
) -> subprocess.CompletedProcess[str]:
    """Plays one rollout in the folder `work`, to its end."""
    home, work = folder / "home", folder / "work"
    home.mkdir(parents=True)
    work.mkdir()
    command, own = agent.start(stand, lease, home)
    return subprocess.run(
        command,
        cwd=work,
        env={"PATH": os.environ["PATH"], "HOME": str(home), **own},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def printed(done: subprocess.CompletedProcess[str]) -> str:
    """What an agent said that came to a good end."""
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def painter(agent: Agent) -> Painter:
    """A process for each rollout, some at once."""

    def one(stand: Stand, lease: LeasedRollout, folder: Path) -> Played:
        done = run(agent, stand, lease, folder)
        wall = folder / "work" / "wall.txt"
        died = None if done.returncode == 0 else f"exit status {done.returncode}"
        return Played(lease, wall.read_text() if wall.exists() else "", died)

    def play(stand: Stand, folder: Path, n: int) -> list[Played]:
        leases = [stand.lease(token_budget=BUDGET) for _ in range(n)]
        with ThreadPoolExecutor(AT_ONCE) as threads:
            return list(threads.map(lambda at: one(stand, at, folder / at.rollout_id), leases))

    moves = tuple((agent.paints(colour), END) for colour in COLOURS)
    return Painter(agent.dialect, moves, play, agent.rooms)


@pytest.mark.parametrize("name", AGENTS)
def test_agent_of_npm_finishes_its_task_and_every_turn_is_captured(name, tmp_path):
    agent, wall = AGENTS[name], tmp_path / "work" / "wall.txt"
    model = byte_model(tmp_path / "bytes", window=1 << 20)
    paint = agent.paints("red")
    engine = Answering(Renderer.open(model), lambda _: END if wall.exists() else paint)
    with standing(tmp_path, model, engine, max_tokens=512) as stand:
        lease = stand.lease()
        assert END in printed(run(agent, stand, lease, tmp_path)) and wall.read_text() == "red"
        one, two = stand.turns(lease)
        assert (one.kind, two.kind, two.parent) == ("root", "extended", one.turn_id)
        for turn in (one, two):
            assert (turn.dialect, turn.state) == (agent.dialect, TurnState.DONE)
            assert turn.prompt_ids == stand.engine.asked[turn.turn_id]
            assert list(turn.completion.output_ids) == stand.engine.gave[turn.turn_id]
        replaced = dict.fromkeys(agent.replaced, 2)
        assert stand.gateway.metrics.overridden == replaced
        assert not stand.gateway.metrics.refused


@pytest.mark.parametrize("name", AGENTS)
def test_budget_ends_an_agent_of_npm_that_would_go_on_for_ever(name, tmp_path):
    agent = AGENTS[name]
    model = byte_model(tmp_path / "bytes", window=1 << 20)
    paint = agent.paints("red")
    engine = Answering(Renderer.open(model), lambda _: paint)
    with standing(tmp_path, model, engine, max_tokens=512) as stand:
        lease = stand.lease(token_budget=3 * len(paint))
        assert "tokens is used up" in printed(run(agent, stand, lease, tmp_path))
        assert 3 <= len(stand.turns(lease)) <= 4


@pytest.mark.parametrize("name", AGENTS)
def test_tiny_model_learns_from_the_rollouts_of_an_agent_of_npm(name):
    # Prompts spell out their folder many times: `tmp_path` would make them longer than a probe.
    with TemporaryDirectory(prefix="n") as folder:
        found = learn(painter(AGENTS[name]), Path(folder), STEPS, GROUPS)
    assert found.after > found.before + GAIN, found
    assert sum(found.rewards[-2:]) > sum(found.rewards[:2]), found
