"""`tradewind env serve` and `tradewind push` as processes, over a network that loses answers."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack

import httpx
from lossy_proxy import LossyProxy
from playground import play, site
from pushed import assignment

from tradewind.envs.shelf import LOST
from tradewind.envs.signature import sign

PUSH = "k1:a-shared-secret-of-some-length"
ENV = """
import httpx
from tradewind.types import Outcome

async def rollout(task, policy):
    async with httpx.AsyncClient(base_url=policy.base_url) as client:
        answer = await client.post("/chat/completions",
            headers={"authorization": "Bearer " + policy.api_key},
            json={"model": policy.model, "messages": [{"role": "user", "content": task["q"]}]})
    return Outcome(status="completed", artefacts=answer.json())
"""


def start(stack: ExitStack, *argv: str, **variables: str) -> subprocess.Popen[str]:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | variables
    process = subprocess.Popen(
        [sys.executable, "-m", *argv], env=env, stderr=subprocess.PIPE, text=True
    )
    stack.callback(end, process)
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    _out, said = process.communicate(timeout=60)
    assert "Traceback" not in said, said


def port_of(process: subprocess.Popen[str]) -> int:
    assert process.stderr is not None
    for line in process.stderr:
        if "ready at " in line:
            return int(line.rpartition(":")[2])
    raise AssertionError("it ended before it was ready")


def test_a_customers_server_plays_over_a_network_that_loses_answers(tmp_path):
    (tmp_path / "push_env.py").write_text(ENV)
    (tmp_path / "push.toml").write_text("poll_s = 0.05\nconcurrency = 4\n")

    async def scenario() -> None:
        with ExitStack() as stack:
            async with site(tmp_path / "l.sqlite") as s:
                served = start(
                    stack,
                    *("tradewind.envs.serve", f"{tmp_path}/push_env.py", "--port", "0"),
                    TRADEWIND_PUSH_KEYS=PUSH,
                )
                async with LossyProxy(await asyncio.to_thread(port_of, served)) as proxy:
                    proxy.lose_after = b"POST /rollouts "
                    start(
                        stack,
                        *("tradewind.worker.bridge", proxy.url, "--controller", s.url),
                        *("--allow-private", "--config", f"{tmp_path}/push.toml"),
                        TRADEWIND_PUSH_KEY=PUSH,
                        TRADEWIND_WORKER_KEY="worker-key",
                    )
                    await proxy.lost.wait()
                    await s.until(lambda: s.finished() == 12)
                    counts = s.ledger.counts()
                    assert counts.turns == {"done": 12}, "nothing was played twice"
                    assert counts.nulls == 0
                await asyncio.to_thread(stack.close)

    play(scenario)


WAITING_ENV = """
import asyncio
from tradewind.types import Outcome

async def rollout(task, policy):
    if task["q"] == "for ever":
        await asyncio.Event().wait()
    return Outcome(status="completed", artefacts={"saw": task["q"]})
"""


def call(port: int, method: str, path: str, body: bytes = b"") -> httpx.Response:
    """One signed request."""
    headers = sign(tuple(PUSH.split(":")), method, path, body)
    url = f"http://127.0.0.1:{port}{path}"
    return httpx.request(method, url, content=body, headers=headers, trust_env=False, timeout=30)


def ended(port: int, rollout: str) -> dict[str, object]:
    """A rollout's progress, once it is over."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        progress = call(port, "GET", f"/rollouts/{rollout}").json()
        if progress["outcome"] is not None:
            return progress
    raise AssertionError(f"{rollout} never ended")


def test_a_served_environment_that_is_killed_plays_nothing_twice_and_names_what_it_lost(tmp_path):
    (tmp_path / "push_env.py").write_text(WAITING_ENV)
    serve = ("tradewind.envs.serve", f"{tmp_path}/push_env.py", "--port", "0")
    serve = (*serve, "--state", f"{tmp_path}/push.sqlite")
    bodies = {
        name: assignment(name, question).model_dump_json().encode()
        for name, question in (("done", "x"), ("running", "for ever"))
    }
    seen = sign(tuple(PUSH.split(":")), "GET", "/rollouts/done", b"")
    with ExitStack() as stack:
        killed = start(stack, *serve, TRADEWIND_PUSH_KEYS=PUSH)
        port = port_of(killed)
        for body in bodies.values():
            assert call(port, "POST", "/rollouts", body).status_code == 201
        before = ended(port, "done")
        url = f"http://127.0.0.1:{port}/rollouts/done"
        assert httpx.get(url, headers=seen, trust_env=False).status_code == 200
        killed.kill()
        killed.wait(30)
        port = port_of(start(stack, *serve, TRADEWIND_PUSH_KEYS=PUSH))
        assert ended(port, "done") == before
        lost = ended(port, "running")
        assert (lost["state"], lost["outcome"]["detail"]) == ("failed", LOST)
        for body in bodies.values():
            assert call(port, "POST", "/rollouts", body).status_code == 200, "known, not played"
        assert ended(port, "running") == lost
        url = f"http://127.0.0.1:{port}/rollouts/done"
        assert httpx.get(url, headers=seen, trust_env=False).status_code == 401, "a replay"
