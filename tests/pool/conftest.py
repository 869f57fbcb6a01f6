"""A small engine, a small model and a bucket with a history."""

from __future__ import annotations

import json
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fakecontroller import FakeController

from tradewind.pool.engine import Bits, ByteProof, EngineLoad, OnChunk, Served
from tradewind.types import (
    FinishReason,
    GenerateChunk,
    GenerateRequest,
    UserError,
    WeightVersion,
)
from tradewind.weights.bucket import Bucket
from tradewind.weights.checkpoint import write_file
from tradewind.weights.digest import leaves_of
from tradewind.weights.probe import Probe
from tradewind.weights.publish import Publisher
from tradewind.weights.tensors import TensorSet

RUN = "desk"
IDS = ((3, 1, 4, 1, 5), (9, 2, 6))
"""What versions of `History` are probed with."""


def fake_score(tensors: Mapping[str, np.ndarray], ids: Sequence[int]) -> list[float]:
    """Stands for a model: every byte of every tensor and all ids so far have their say."""
    weights = zlib.crc32(b"".join(tensors[name].tobytes() for name in sorted(tensors)))
    return [-1 - (weights + sum(ids[: i + 2]) * (i + 3)) % 7 for i in range(len(ids) - 1)]


class FakeEngine:
    """Implements the Protocol: every request samples its own length of output, one id a step."""

    def __init__(self, tensors: dict[str, np.ndarray]) -> None:
        self.tensors = {name: array.copy() for name, array in tensors.items()}
        self.version = 0
        self.dtype = "float32"
        self.proof = ByteProof.READ_BACK
        self.error: str | None = None
        self.swaps: list[int] = []
        self.spoil: Callable[[dict[str, np.ndarray]], None] | None = None
        """Runs on what is served after each swap."""
        self.refuse: str | None = None
        self.miscompute: Callable[[float], float] = lambda logprob: logprob
        """What its arithmetic makes of the right logprob."""
        self.scored = 0
        self.cancelled = threading.Event()
        self._running: dict[str, tuple[GenerateRequest, OnChunk, int]] = {}
        self._bell = threading.Condition()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def submit(self, request: GenerateRequest, on_chunk: OnChunk) -> None:
        with self._bell:
            self._running[request.request_id] = (request, on_chunk, 0)
            self._bell.notify()

    def cancel(self, request_id: str) -> None:
        with self._bell:
            found = self._running.pop(request_id, None)
        if found:
            found[1](self._chunk((), FinishReason.CANCELLED))
            self.cancelled.set()

    def swap(self, changed: Bits, version: int, afresh: bool = False) -> float:
        assert not afresh or changed.keys() == self.tensors.keys()
        if self.refuse:
            raise UserError(self.refuse, fix="none")
        self.tensors.update({name: array.copy() for name, array in changed.items()})
        self.version = version
        self.swaps.append(version)
        if self.spoil:
            self.spoil(self.tensors)
        return 0.001

    def served(self) -> Served:
        return Served(leaves_of(self.tensors), self.proof)

    def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        self.scored += 1
        return [[self.miscompute(p) for p in fake_score(self.tensors, ids)] for ids in sequences]

    def load(self) -> EngineLoad:
        return EngineLoad(
            running=len(self._running),
            waiting=0,
            max_batch=4,
            tokens_per_s=0.0,
            dtype=self.dtype,
            version=self.version,
            error=self.error,
        )

    def stop(self) -> None:
        with self._bell:
            self._stopping = True
            self._bell.notify()
        if self._thread:
            self._thread.join(10)
        for request_id in list(self._running):
            self.cancel(request_id)

    def _run(self) -> None:
        while not self._stopping:
            with self._bell:
                if not self._running:
                    self._bell.wait(1.0)
                steps = list(self._running.items())
            for request_id, (request, on_chunk, done) in steps:
                last = done + 1 == request.max_tokens
                with self._bell:
                    if request_id not in self._running:
                        continue
                    if last:
                        del self._running[request_id]
                    else:
                        self._running[request_id] = (request, on_chunk, done + 1)
                on_chunk(self._chunk((done,), FinishReason.LENGTH if last else None))
            if steps:
                with self._bell:
                    self._bell.wait(0.001)

    def _chunk(self, ids: tuple[int, ...], reason: FinishReason | None) -> GenerateChunk:
        return GenerateChunk(
            ids=ids, logprobs=(-0.5,) * len(ids), version=self.version, finish_reason=reason
        )


class History:
    """A bucket into which versions are published, and the tensors of each."""

    def __init__(self, folder: Path, base: dict[str, np.ndarray]) -> None:
        self.folder = folder
        self.url = f"file://{folder}"
        self.bucket = Bucket.open(self.url)
        self.publisher = Publisher(self.bucket, RUN)
        self.states = [base]
        self.versions: list[WeightVersion] = []
        self.ids: Sequence[tuple[int, ...]] = ()
        """Of the probes that the next versions carry."""
        self.score = fake_score

    def publish_base(self) -> None:
        version = self.publisher.publish(0, None, {}, self.states[0], "base")
        self.publisher.announce(version)
        self.versions.append(version)

    def publish_next(self) -> WeightVersion:
        number = len(self.versions)
        after = {name: array.copy() for name, array in self.states[-1].items()}
        first = next(iter(after))
        after[first][number] ^= 1
        probes = tuple(Probe.of(ids, self.score(after, ids)) for ids in self.ids)
        version = self.publisher.publish(
            number, self.versions[-1], self.states[-1], after, "rl", step=number, probes=probes
        )
        self.publisher.announce(version)
        self.states.append(after)
        self.versions.append(version)
        return version

    def frame_of_last(self) -> Path:
        known = sorted((self.folder / "frames").iterdir(), key=lambda path: path.stat().st_mtime_ns)
        return known[-1]


@pytest.fixture
def history(tmp_path: Path) -> History:
    draw = np.random.default_rng(0)
    base = {
        "embed.weight": draw.integers(0, 2**16, (64, 16), np.uint16),
        "norm.weight": draw.standard_normal(16).astype(np.float32),
    }
    made = History(tmp_path / "bucket", base)
    made.publish_base()
    return made


@pytest.fixture
def tiny_llama(tmp_path: Path) -> tuple[History, Path]:
    """A random Llama of 20,000 parameters in bf16, its folder, and a bucket with its base."""
    draw = np.random.default_rng(0)
    width, inner, vocab = 32, 48, 200
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab, width)}
    for layer in range(2):
        name = f"model.layers.{layer}."
        shapes |= {
            f"{name}self_attn.{part}_proj.weight": (width if part in "qo" else width // 2, width)
            for part in "qkvo"
        }
        shapes |= {f"{name}mlp.{part}_proj.weight": (inner, width) for part in ("gate", "up")}
        shapes[f"{name}mlp.down_proj.weight"] = (width, inner)
        shapes |= {
            f"{name}{part}_layernorm.weight": (width,) for part in ("input", "post_attention")
        }
    shapes["model.norm.weight"] = (width,)
    base = {
        name: (draw.standard_normal(shape, np.float32).view(np.uint32) >> 16).astype(np.uint16)
        for name, shape in shapes.items()
    }
    folder = tmp_path / "llama"
    folder.mkdir()
    write_file(folder / "model.safetensors", TensorSet(base))
    (folder / "config.json").write_text(
        json.dumps(
            {
                "model_type": "llama",
                "hidden_size": width,
                "intermediate_size": inner,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "vocab_size": vocab,
                "max_position_embeddings": 256,
                "tie_word_embeddings": True,
            }
        )
    )
    made = History(tmp_path / "llama-bucket", base)
    made.publish_base()
    return made, folder


@pytest.fixture
def folder(tmp_path: Path, history: History) -> Path:
    path = tmp_path / "model"
    path.mkdir()
    write_file(path / "model.safetensors", TensorSet(history.states[0]))
    return path


@pytest.fixture
def engine(history: History) -> Iterator[FakeEngine]:
    made = FakeEngine(history.states[0])
    yield made
    made.stop()


@pytest.fixture
def controller() -> Iterator[FakeController]:
    made = FakeController()
    yield made
    made.close()
