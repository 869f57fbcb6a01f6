"""The worker in JavaScript against a real controller and a real gateway: no line of it is ours to
import, so it holds only what the protocol says."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tradewind.controller.config import ControllerConfig
from tradewind.controller.controller import Controller
from tradewind.controller.keys import Keys
from tradewind.controller.main import serve
from tradewind.http.listening import listen
from tradewind.ledger.groups import reject

ROOT = Path(__file__).parents[2]
NODE = shutil.which("node")


def test_node_is_installed():
    assert NODE, "make test installs it; or: apt-get install nodejs"


@pytest.fixture
def controller(world) -> Iterator[str]:
    """A controller on the ledger of the gateway's world; its URL."""
    listener = listen("127.0.0.1", 0)
    settings = {"gateway_url": f"{world.url}/v1", "heartbeat_s": 0.05, "tick_s": 0.01}
    world.ledger.set_meta("training_open", True)
    loop = world.servers.loop

    async def live() -> None:
        config = ControllerConfig(**settings, pool_alive_s=600.0, groups_per_step=1)
        served.append(Controller(config, world.ledger))
        keys = Keys(worker="worker-key", pool="p", admin="a")
        await serve(served[0], keys, listener)

    served: list[Controller] = []
    running = asyncio.run_coroutine_threadsafe(live(), loop)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    loop.call_soon_threadsafe(served[0].stop)
    running.result(30)


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start the worker; what is still there after the test is killed and its words are shown."""
    started: list[subprocess.Popen[str]] = []

    def run(url: str, module: Path, key: str = "worker-key") -> subprocess.Popen[str]:
        assert NODE
        argv = [NODE, str(ROOT / "examples/node-worker/worker.mjs"), str(module), url, "4"]
        env = os.environ | {"TRADEWIND_WORKER_KEY": key}
        started.append(subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env=env))
        return started[-1]

    yield run
    for process in started:
        if process.returncode is None:
            process.kill()
            print(process.communicate()[1])


def end(process: subprocess.Popen[str]) -> str:
    process.send_signal(signal.SIGTERM)
    _out, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    return said


def delivered(world, rollout):
    """The turns of a rollout once the agent has them: that is recorded after the answer."""
    return world.wait_until(lambda: [t for t in world.ledger.turns(rollout) if t.delivered])


def test_a_worker_in_javascript_plays_real_leases(world, controller, start):
    process = start(controller, ROOT / "examples/node-worker/rollout.mjs")
    finished = lambda: world.ledger.counts().rollouts.get("finished", 0)  # noqa: E731
    world.wait_until(lambda: finished() >= 8)
    end(process)
    claimed = world.ledger.claim_finished("g", 100, time.time(), 60.0)
    assert {c.outcome.status.value for c in claimed} == {"completed"}
    assert {c.outcome.artefacts["said"] for c in claimed} == {"hello"}
    for one in claimed:
        (turn,) = delivered(world, one.rollout_id)
        assert turn.completion.output_ids
    assert "lease.lost" not in {event.kind for event in world.ledger.events()}


STUCK = """
import { writeFileSync } from "node:fs";
export async function rollout(task, policy, signal) {
  await fetch(`${policy.base_url}/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${policy.api_key}`, "content-type": "application/json" },
    body: JSON.stringify({ model: policy.model, messages: [{ role: "user", content: "x" }] }),
  });
  await new Promise((end) => signal.addEventListener("abort", end));
  writeFileSync(new URL(`ended-${policy.api_key.slice(-8)}`, import.meta.url), "x");
  throw new Error("ended");
}
"""


def test_a_lost_lease_ends_the_agent_in_javascript_too(world, controller, start, tmp_path):
    (tmp_path / "stuck.mjs").write_text(STUCK)
    process = start(controller, tmp_path / "stuck.mjs")
    world.wait_until(lambda: world.ledger.counts().turns.get("done", 0) >= 4)
    with world.ledger.write() as conn:
        reject(conn, "g000000", "given up by the test", wait=True)
    world.wait_until(lambda: len(list(tmp_path.glob("ended-*"))) >= 4)
    assert "lease lost" in end(process)


def test_a_worker_in_javascript_says_why_it_is_refused(controller, start):
    process = start(controller, ROOT / "examples/node-worker/rollout.mjs", "wrong")
    _out, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "TRADEWIND_WORKER_KEY" in said and "    at " not in said
