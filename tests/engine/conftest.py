"""Fixtures; `tinyllm` and `slow_reference` beside this file are what the tests import."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from tinyllm import Listener, make_model

from tradewind.pool.engines.embedded.engine import EmbeddedEngine


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Tiny models are slower with two threads, much so on a busy machine."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Any]]:
    """`models(kind)`: a folder with a checkpoint, and the transformers model that wrote it."""
    made: dict[str, tuple[Path, Any]] = {}

    def get(kind: str) -> tuple[Path, Any]:
        if kind not in made:
            folder = tmp_path_factory.mktemp(kind)
            made[kind] = folder, make_model(kind, folder)
        return made[kind]

    return get


@pytest.fixture
def opened() -> Iterator[Callable[..., Listener]]:
    """`opened(folder, **options)`: a started engine with a listener; stopped at the end."""
    engines: list[EmbeddedEngine] = []

    def start(folder: Path, *, started: bool = True, **options: Any) -> Listener:
        engine = EmbeddedEngine.open(folder, **{"threads": 1, "dtype": "float32"} | options)
        engines.append(engine)
        if started:
            engine.start()
        return Listener(engine)

    yield start
    for engine in engines:
        engine.stop()
