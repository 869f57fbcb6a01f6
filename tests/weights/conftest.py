"""A small model of mixed dtypes, steps on it, and a bucket with a history."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from tradewind.types import WeightVersion
from tradewind.weights.bucket import Bucket
from tradewind.weights.ladder import Ladder
from tradewind.weights.publish import Publisher
from tradewind.weights.state import State
from tradewind.weights.tensors import Array

RUN = "run"


def small_model(seed: int = 0) -> dict[str, Array]:
    """Four tensors in three dtypes; the first needs two pieces."""
    draw = np.random.default_rng(seed)
    return {
        "model.embed.weight": draw.integers(0, 2**16, (700, 1024), np.uint16),
        "model.norm.weight": draw.standard_normal(32).astype(np.float32),
        "model.scale": draw.standard_normal(()).astype(np.float16),
        "model.up.weight": draw.integers(0, 2**16, (48, 32), np.uint16),
    }


def step_from(tensors: Mapping[str, Array], seed: int) -> dict[str, Array]:
    """One bit of about one byte in a hundred differs, in every tensor."""
    draw = np.random.default_rng(seed)
    after = {}
    for name, array in tensors.items():
        bits = array.copy().reshape(-1).view(np.uint8)
        bits[draw.integers(0, bits.size, 1 + bits.size // 100)] ^= 1
        after[name] = bits.view(array.dtype).reshape(array.shape)
    return after


class Chain:
    """Versions 0 to `length` of one run in a bucket folder."""

    def __init__(self, folder: Path, length: int, run_id: str = RUN, seed: int = 0) -> None:
        self.folder = folder
        self.bucket = Bucket.open(f"file://{folder}")
        self.publisher = Publisher(self.bucket, run_id, piece_bytes=2**20)
        self.states = [small_model(seed)]
        self.versions: list[WeightVersion] = []
        self.seed = seed
        for _ in range(length + 1):
            self.publish_next()

    def publish_next(self) -> WeightVersion:
        version = self.upload_next()
        self.publisher.announce(version)
        return version

    def upload_next(self) -> WeightVersion:
        number = len(self.versions)
        if number == 0:
            version = self.publisher.publish(0, None, {}, self.states[0], "base")
        else:
            self.states.append(step_from(self.states[-1], 100 * self.seed + number))
            parent, (old, new) = self.versions[-1], self.states[-2:]
            version = self.publisher.publish(number, parent, old, new, "rl", step=number)
        self.versions.append(version)
        return version

    def add_shortcuts(self, span: int) -> None:
        """All that a ladder publishes that never falls behind."""
        ladder = Ladder(self.bucket, RUN, State.of(0, self.states[0]), span=span)
        for version, tensors in zip(self.versions[1:], self.states[1:], strict=True):
            ladder.offer(version, tensors)
            assert ladder.settle(60).finished
        assert ladder.close(60).failed == 0

    def copied(self, folder: Path) -> Chain:
        """The same chain in `folder`, to be damaged there."""
        shutil.copytree(self.folder, folder)
        other = copy.copy(self)
        other.folder, other.bucket = folder, Bucket.open(f"file://{folder}")
        other.publisher = Publisher(other.bucket, RUN, piece_bytes=2**20)
        other.states, other.versions = list(self.states), list(self.versions)
        return other


@pytest.fixture(scope="session")
def make_chain() -> type[Chain]:
    """`make_chain(folder, length)`, for fixtures that build one for many tests."""
    return Chain


@pytest.fixture
def new_chain(tmp_path: Path) -> Callable[..., Chain]:
    """`new_chain(length, name="bucket", run_id=..., seed=...)`."""

    def make(length: int, name: str = "bucket", **options: object) -> Chain:
        return Chain(tmp_path / name, length, **options)  # type: ignore[arg-type]

    return make


@pytest.fixture
def step() -> Callable[[Mapping[str, Array], int], dict[str, Array]]:
    return step_from


@pytest.fixture
def model() -> dict[str, Array]:
    return small_model()


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    return Bucket.open(f"file://{tmp_path}/bucket")
