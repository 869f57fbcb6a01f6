"""A small random checkpoint, and a Python that has vLLM (`TRADEWIND_VLLM_PYTHON`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "pool"))
sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))
sys.path.insert(0, str(Path(__file__).parents[1] / "clients"))
sys.path.insert(0, str(Path(__file__).parents[1] / "vllm"))

from fakecontroller import KEY, FakeController
from run import Run
from smallmodel import CPU, HEAD, INNER, LAYERS, VOCAB, WIDTH, random_llama
from world import World

from tradewind.pool.engines.embedded.engine import EmbeddedEngine
from tradewind.pool.engines.vllm.config import VllmConfig
from tradewind.pool.engines.vllm.engine import VllmEngine
from tradewind.weights.checkpoint import read_folder, write_file
from tradewind.weights.tensors import Array, TensorSet

HERE = Path(__file__).parent
WAIT_S = 60


@pytest.fixture(scope="session")
def base() -> dict[str, Array]:
    return random_llama()


@pytest.fixture(scope="session")
def checkpoint(base: dict[str, Array], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vllm") / "model"
    folder.mkdir()
    write_file(folder / "model.safetensors", TensorSet(base))
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "bfloat16",
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": WIDTH // HEAD,
        "num_key_value_heads": WIDTH // HEAD // 2,
        "head_dim": HEAD,
        "vocab_size": VOCAB,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    path = os.environ.get("TRADEWIND_VLLM_PYTHON")
    if not path:
        pytest.skip("no Python with vLLM: `make test` makes one, TRADEWIND_VLLM_PYTHON names one")
    return Path(path)


@pytest.fixture(scope="session")
def run(checkpoint: Path, base: dict[str, Array], tmp_path_factory: Any) -> Iterator[Run]:
    made = Run(tmp_path_factory.mktemp("bucket"), checkpoint, base)
    yield made
    made.trainer.stop()


@pytest.fixture(scope="session")
def controller() -> Iterator[FakeController]:
    made = FakeController()
    yield made
    made.close()


@pytest.fixture(scope="session")
def process(
    vllm_python: Path,
    checkpoint: Path,
    run: Run,
    controller: FakeController,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[subprocess.Popen[bytes]]:
    folder = tmp_path_factory.mktemp("pool")
    extension = ["--worker-extension-cls", "plain_layout.TradewindWorker"]
    section = {
        "name": "paris",
        "engine": "vllm",
        "model": str(checkpoint),
        "bucket": run.url,
        "controller": controller.url,
        "dtype": "float32",
        "max_batch": 4,
        "vllm": {
            "python": str(vllm_python),
            "arguments": ["--enforce-eager", *extension],
            "environment": {**CPU, "PYTHONPATH": str(HERE)},
            "health_s": 0.2,
        },
    }
    (folder / "pool.json").write_text(json.dumps(section))
    argv = [sys.executable, "-m", "tradewind.pool", "--config", str(folder / "pool.json")]
    env = {**os.environ, "TRADEWIND_POOL_KEY": KEY, "PYTHONPATH": str(HERE.parents[1] / "src")}
    with (folder / "log").open("wb") as log:
        pool = subprocess.Popen(argv, env=env, stderr=log)
    pool.log = folder / "log"  # type: ignore[attr-defined]
    yield pool
    pool.terminate()
    pool.wait(WAIT_S)


@pytest.fixture(scope="package")
def world(
    vllm_python: Path, checkpoint: Path, base: dict[str, Array], process: Any
) -> Iterator[World]:
    """`process`, which another module needs, starts at the same time."""
    config = VllmConfig(
        python=vllm_python, arguments=("--enforce-eager",), environment=CPU, health_s=0.2
    )
    vllm = VllmEngine.open(
        checkpoint, read_folder(checkpoint), config, dtype="float32", max_batch=4
    )
    embedded = EmbeddedEngine.open(checkpoint, dtype="float32", threads=1)
    embedded.start()
    try:
        vllm.start()
        yield World(vllm, embedded, base)
    finally:
        vllm.stop()
        embedded.stop()
