"""`tradewind env serve` and `tradewind push` as processes, over a network that loses answers."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import ExitStack

from lossy_proxy import LossyProxy
from playground import play, site

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
