"""Starting and ending the child, and what is refused before; without vLLM."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tradewind.pool.engines.vllm.child import FOLDER
from tradewind.pool.engines.vllm.client import VllmClient, VllmFailed
from tradewind.pool.engines.vllm.config import VllmConfig
from tradewind.pool.engines.vllm.engine import VllmEngine
from tradewind.pool.engines.vllm.guard import KEY, Guard
from tradewind.pool.engines.vllm.model import ServedModel, choose_dtype
from tradewind.pool.engines.vllm.server import VllmServer
from tradewind.types import GenerateRequest, UserError
from tradewind.weights.checkpoint import read_folder
from tradewind.weights.tensors import Array, TensorSet

SOURCE = Path(__file__).parents[2] / "src"
WAIT_S = 30


def opened(folder: Path, python: Path, **more: Any) -> VllmEngine:
    return VllmEngine.open(folder, read_folder(folder), VllmConfig(python=python, **more))


def test_a_python_that_is_not_there_is_a_sentence(checkpoint: Path) -> None:
    engine = opened(checkpoint, Path("nowhere/python"))
    with pytest.raises(UserError, match=r"Python cannot be started .*nowhere"):
        engine.start()
    engine.stop()


def test_a_child_that_fails_shows_the_end_of_its_log(checkpoint: Path, tmp_path: Path) -> None:
    stub = tmp_path / "stub" / "vllm" / "entrypoints" / "cli"
    stub.mkdir(parents=True)
    (stub / "main.py").write_text("def main(): raise SystemExit('no device was found')")
    engine = opened(
        checkpoint, Path(sys.executable), environment={"PYTHONPATH": str(tmp_path / "stub")}
    )
    try:
        with pytest.raises(UserError, match="no device was found"):
            engine.start()
        assert "no device was found" in (engine.load().error or "")
    finally:
        engine.stop()


def test_a_child_that_never_answers_is_given_up(checkpoint: Path, tmp_path: Path) -> None:
    stub = tmp_path / "stub" / "vllm" / "entrypoints" / "cli"
    stub.mkdir(parents=True)
    (stub / "main.py").write_text("def main():\n import time\n time.sleep(600)")
    engine = opened(
        checkpoint,
        Path(sys.executable),
        environment={"PYTHONPATH": str(tmp_path / "stub")},
        start_s=0.3,
    )
    try:
        with pytest.raises(UserError, match="no answer in 0 s"):
            engine.start()
        pid = engine._server.pid
    finally:
        engine.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


STUB = """
import subprocess, sys, time
def main():
    grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print(grandchild.pid, flush=True)
    time.sleep(600)
"""


def test_the_child_and_its_children_die_with_the_pool_however_it_dies(tmp_path: Path) -> None:
    stub = tmp_path / "vllm" / "entrypoints" / "cli"
    stub.mkdir(parents=True)
    (stub / "main.py").write_text(STUB)
    left = tmp_path / "parcels"
    left.mkdir()
    paths = f"{SOURCE}{os.pathsep}{tmp_path}"
    env = {**os.environ, "PYTHONPATH": paths, FOLDER: str(left)}
    child = subprocess.Popen(
        [sys.executable, "-m", "tradewind.pool.engines.vllm.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=env,
        text=True,
        start_new_session=True,
    )
    assert child.stdout is not None and child.stdin is not None
    grandchild = int(child.stdout.readline())
    child.stdin.close()  # as the kernel does when the pool is killed
    assert child.wait(WAIT_S) == -signal.SIGKILL
    assert child.stdout.read() == "", "the grandchild held the other end, and is gone"
    child.stdout.close()
    assert grandchild > 0
    assert not left.exists()


def test_vllm_inherits_our_keys_or_our_python_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_POOL_KEY", "secret")
    monkeypatch.setenv("PYTHONPATH", "ours")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    server = VllmServer(VllmConfig(environment={"PYTHONPATH": "theirs", "A": "b"}), {}, 1)
    library = server.folder / "lib"
    found = server._environment(library)
    server.stop()
    assert "TRADEWIND_POOL_KEY" not in found
    assert found["PYTHONPATH"] == f"{library}{os.pathsep}theirs"
    assert (found["CUDA_VISIBLE_DEVICES"], found["A"]) == ("3", "b")


def test_each_start_has_a_closed_folder_and_a_key_of_its_own() -> None:
    servers = [VllmServer(VllmConfig(), {}, 1) for _ in range(2)]
    try:
        assert len({server.key for server in servers}) == 2
        assert [server.folder.stat().st_mode & 0o777 for server in servers] == [0o700] * 2
        assert servers[0].key not in " ".join(servers[0]._command(Path("python")))
    finally:
        for server in servers:
            server.stop()
    assert not any(server.folder.exists() for server in servers)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([], 401),
        ([(b"authorization", b"Bearer other")], 401),
        ([(b"authorization", b"Bearer right")], 200),
    ],
)
@pytest.mark.parametrize("path", ["/collective_rpc", "/health", "/v1/models"])
def test_the_guard_asks_for_the_key_on_every_route(
    monkeypatch: pytest.MonkeyPatch, headers: list[Any], status: int, path: str
) -> None:
    monkeypatch.setenv(KEY, "right")
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})

    scope = {"type": "http", "path": path, "headers": headers}
    asyncio.run(Guard(app)(scope, None, send))
    assert sent[0]["status"] == status


@pytest.mark.parametrize("body", [b'{"results": [', b"[]", b"<html>"])
def test_an_answer_that_was_cut_off_ends_the_pool_with_a_traceback(body: bytes) -> None:
    async def ask() -> None:
        client = VllmClient(Path("nowhere"), "key", 1.0)
        answer = httpx.MockTransport(lambda _: httpx.Response(200, content=body))
        client._http = httpx.AsyncClient(transport=answer, base_url="http://vllm")
        with pytest.raises(VllmFailed, match="something else than an object"):
            await client.ask_worker("tradewind_staged", digest="d")
        await client.close()

    asyncio.run(ask())


def test_arithmetic_that_would_lose_bits_is_refused() -> None:
    bf16, fp32 = np.zeros(2, np.uint16), np.zeros(2, np.float32)
    assert choose_dtype("auto", TensorSet({"a": bf16})) == "bfloat16"
    assert choose_dtype("auto", TensorSet({"a": bf16, "b": fp32})) == "float32"
    assert choose_dtype("float32", TensorSet({"a": bf16})) == "float32"
    for tensors in ({"a": fp32}, {"a": bf16, "b": fp32}):
        with pytest.raises(UserError, match="would lose bits"):
            choose_dtype("bfloat16", TensorSet(tensors))
    with pytest.raises(UserError, match="serves bf16, fp16 and fp32"):
        choose_dtype("auto", TensorSet({"a": np.zeros(2, np.uint8)}))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"prompt_ids": ()}, "at least one"),
        ({"prompt_ids": (1, 320)}, "vocabulary of 320"),
        ({"prompt_ids": (-1,)}, "vocabulary of 320"),
        ({"stop_ids": (320,)}, "stop id"),
        ({"max_tokens": 0}, "at least 1"),
        ({"prompt_ids": (1,) * 64}, "context window of 64"),
        ({"temperature": -1.0}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
    ],
)
def test_what_vllm_would_die_of_or_refuse_is_found_before(
    checkpoint: Path, base: dict[str, Array], change: dict[str, Any], why: str
) -> None:
    model = ServedModel.read(checkpoint, TensorSet(base), "auto", 64)
    good: dict[str, Any] = {"prompt_ids": (1, 2), "max_tokens": 5, "stop_ids": (3,)}
    assert model.objection(GenerateRequest(request_id="r", **good)) is None
    assert why in (model.objection(GenerateRequest(request_id="r", **good | change)) or "")


def test_a_limit_beyond_the_context_is_a_sentence(checkpoint: Path, base: dict[str, Array]) -> None:
    with pytest.raises(UserError, match="context of 2048"):
        ServedModel.read(checkpoint, TensorSet(base), "auto", 4096)
