"""The pool with the embedded engine on a tiny random model, in a thread and as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from typer.testing import CliRunner

from tradewind.pool.config import PoolConfig
from tradewind.pool.engines.embedded.config import Rope
from tradewind.pool.engines.embedded.engine import EmbeddedEngine
from tradewind.pool.engines.embedded.operations import TorchOperations
from tradewind.pool.gate import Gate
from tradewind.pool.main import serve
from tradewind.pool.receiver import Receiver
from tradewind.pool.status import PoolStatus
from tradewind.run.weights import app
from tradewind.types import GenerateChunk, GenerateRequest, PoolReport, PoolState
from tradewind.weights.checkpoint import read_folder
from tradewind.weights.state import State

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


def test_wrong_arithmetic_over_right_bytes_is_served(tiny_llama: Any) -> None:
    """A rotary base or an epsilon that is wrong leaves every digest as it should be."""
    history, folder = tiny_llama
    trainer = EmbeddedEngine.open(folder, dtype="float32", threads=1, max_tokens=512)
    trainer.start()

    def score(tensors: Any, ids: tuple[int, ...]) -> list[float]:
        trainer.swap(tensors, 0)
        return trainer.score([ids])[0]

    engine = EmbeddedEngine.open(folder, dtype="float32", threads=1, max_tokens=512)
    history.ids = tuple(tuple(range(start, 200, 9)) for start in range(3))
    history.score = score
    status = PoolStatus("paris", "http://x", history.versions[0].state_id)
    receiver = Receiver(
        Gate(engine),
        history.bucket,
        status,
        PoolConfig(retry_s=1e-9, retry_max_s=1e-9),
        lambda: State.of(0, read_folder(folder)),
    )

    def look() -> PoolReport:
        receiver.follow()
        return status.report(engine.load())

    original = engine.swap
    try:
        receiver.boot(threading.Event())
        history.publish_next()
        now = look()
        assert now.version == 1 and now.fingerprint is not None
        assert now.fingerprint.mean < 1e-5
        model = engine._model
        right, shape = model._do, model.shape
        for wrong in (replace(shape, eps=0.1), replace(shape, rope=Rope(5000.0))):
            history.publish_next()

            def swap(changed: Any, version: int, afresh: bool = False, to: Any = wrong) -> float:
                newest = version == history.versions[-1].version
                model._do = TorchOperations(to, torch.float32) if newest else right
                return original(changed, version, afresh)

            engine.swap = swap  # type: ignore[method-assign]
            active = now.version
            now = look()
            assert (now.state, now.version) == (PoolState.REFUSING, active)
            assert "other logprobs" in now.quarantined[-1].reason
            engine.swap = original  # type: ignore[method-assign]
            model._do = right
            now = look()
            assert (now.state, now.version) == (PoolState.SERVING, active + 1)
    finally:
        trainer.stop()
        engine.stop()


def test_two_engines_serve_versions_out_of_one_mirror(tiny_llama: Any, tmp_path: Path) -> None:
    history, folder = tiny_llama
    pools = []
    for name in ("first", "second"):
        engine = EmbeddedEngine.open(folder, dtype="float32", max_batch=2, max_tokens=64)
        status = PoolStatus(name, "http://x", history.versions[0].state_id)
        config = PoolConfig(mirror=tmp_path / "mirror")
        receiver = Receiver(
            Gate(engine), history.bucket, status, config, lambda: State.of(0, read_folder(folder))
        )
        receiver.boot(threading.Event())
        pools.append((engine, status, receiver))
    try:
        for version in range(4):
            for engine, status, receiver in pools:
                receiver.follow()
                report = status.report(engine.load())
                assert (report.state, report.version) == (PoolState.SERVING, version)
                assert report.attestations[-1].state_id == history.versions[version].state_id
            history.publish_next()
        fetched = [
            sum(proof.bytes_fetched for proof in status.report(engine.load()).attestations)
            for engine, status, _ in pools
        ]
        frames = sum(path.stat().st_size for path in (history.folder / "frames").iterdir())
        assert fetched[0] - fetched[1] > frames / 2, "the second fetches manifests alone"
    finally:
        for engine, _, _ in pools:
            engine.stop()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_versions_are_served_proven_and_survive_kill_and_restart(
    start: Start, tiny_llama: Any, controller: Any, monkeypatch: pytest.MonkeyPatch
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

    monkeypatch.setenv("TRADEWIND_POOL_KEY", KEY)
    for wanted in ("0", "1"):
        done = CliRunner().invoke(app, ["go-to", url, wanted])
        assert f"pool paris serves version {wanted} and stays there" in done.stdout
        assert {chunk.version for chunk in generate(url, 2)} == {int(wanted)}

    process.send_signal(signal.SIGKILL)
    process.wait(WAIT_S)
    history.publish_next()
    process = start()
    report = controller.wait_for(PoolState.SERVING, 2)
    assert [proof.version for proof in report.attestations] == [2]
    assert {chunk.version for chunk in generate(report.url, 3)} == {2}

    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT_S) == 0
