"""The pool with the embedded engine on a tiny random model, in a thread and as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tradewind.pool.config import PoolConfig
from tradewind.pool.main import serve
from tradewind.types import GenerateChunk, GenerateRequest, PoolState

KEY = "pool-key"
WAIT_S = 60

Start = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture
def start(tiny_llama: Any, controller: Any) -> Iterator[Start]:
    history, folder = tiny_llama
    started: list[subprocess.Popen[str]] = []

    def run() -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "tradewind.pool", "--name", "paris", "--port", "0"]
        argv += ["--model", str(folder), "--bucket", history.url, "--join", controller.url]
        argv += ["--dtype", "float32", "--max-batch", "4", "--max-tokens", "512"]
        source = Path(__file__).parents[2] / "src"
        env = {**os.environ, "TRADEWIND_POOL_KEY": KEY, "PYTHONPATH": str(source)}
        process = subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate(timeout=WAIT_S)


def generate(url: str, seed: int) -> list[GenerateChunk]:
    request = GenerateRequest(
        request_id=f"r{seed}", prompt_ids=(1, 2, 3), max_tokens=8, stop_ids=(), seed=seed
    )
    answer = httpx.post(
        f"{url}/v1/generate",
        content=request.model_dump_json(),
        headers={"Authorization": f"Bearer {KEY}"},
        timeout=WAIT_S,
        trust_env=False,
    )
    return [GenerateChunk.model_validate_json(line) for line in answer.text.splitlines()]


def test_the_embedded_engine_serves_the_published_bytes(
    tiny_llama: Any, controller: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    history, folder = tiny_llama
    monkeypatch.setenv("TRADEWIND_POOL_KEY", KEY)
    config = PoolConfig(
        model=folder,
        bucket=history.url,
        controller=controller.url,
        dtype="float32",
        max_batch=4,
        max_tokens=512,
        poll_s=0.01,
        report_s=0.02,
    )
    thread = threading.Thread(target=serve, args=(config,), daemon=True)
    thread.start()
    url = controller.wait_for(PoolState.SERVING, 0).url
    chunks = generate(url, 1)
    assert sum(len(chunk.ids) for chunk in chunks) == 8
    assert {chunk.version for chunk in chunks} == {0}
    published = history.publish_next()
    report = controller.wait_for(PoolState.SERVING, 1)
    assert report.attestations[-1].state_id == published.state_id
    assert report.detail is None
    assert {chunk.version for chunk in generate(url, 2)} == {1}
    controller.stop = True
    thread.join(WAIT_S)
    assert not thread.is_alive()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_versions_are_served_proven_and_survive_kill_and_restart(
    start: Start, tiny_llama: Any, controller: Any
) -> None:
    history, _ = tiny_llama
    process = start()
    url = controller.wait_for(PoolState.SERVING, 0).url
    chunks = generate(url, 1)
    assert sum(len(chunk.ids) for chunk in chunks) == 8
    assert {chunk.version for chunk in chunks} == {0}

    published = history.publish_next()
    (proof,) = controller.wait_for(PoolState.SERVING, 1).attestations
    assert (proof.version, proof.state_id) == (1, published.state_id)
    assert {chunk.version for chunk in generate(url, 2)} == {1}

    process.send_signal(signal.SIGKILL)
    process.wait(WAIT_S)
    history.publish_next()
    process = start()
    report = controller.wait_for(PoolState.SERVING, 2)
    assert [proof.version for proof in report.attestations] == [2]
    assert {chunk.version for chunk in generate(report.url, 3)} == {2}

    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT_S) == 0
