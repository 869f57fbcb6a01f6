"""The receiver, driven step by step against a real bucket and a small engine."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tradewind.pool.config import PoolConfig
from tradewind.pool.engine import EngineLoad
from tradewind.pool.gate import Gate
from tradewind.pool.receiver import EngineLost, Receiver
from tradewind.pool.status import PoolStatus
from tradewind.types import PoolReport, PoolState, UserError
from tradewind.weights.checkpoint import read_folder, write_file
from tradewind.weights.ladder import Ladder
from tradewind.weights.signing import pointer_to
from tradewind.weights.state import State
from tradewind.weights.tensors import TensorSet

NOW = 1e-9  # seconds until a refused version is tried again


def make(history: Any, engine: Any, folder: Path, **config: Any) -> tuple[Receiver, PoolStatus]:
    def base() -> State:
        return State.of(0, read_folder(folder))

    status = PoolStatus("paris", "http://127.0.0.1:1", history.versions[0].state_id)
    given = PoolConfig(**{"retry_s": NOW, "retry_max_s": NOW, **config})
    return Receiver(Gate(engine), history.bucket, status, given, base), status


def report(status: PoolStatus, engine: Any) -> PoolReport:
    return status.report(engine.load())


def serves(engine: Any, state: dict[str, np.ndarray]) -> bool:
    return all(np.array_equal(engine.tensors[name], state[name]) for name in state)


def booted(history: Any, engine: Any, folder: Path) -> tuple[Receiver, PoolStatus]:
    receiver, status = make(history, engine, folder)
    receiver.boot(threading.Event())
    receiver.follow()
    assert status.state is PoolState.SERVING
    return receiver, status


def test_a_restarted_pool_serves_nothing_before_the_newest_version(
    history: Any, engine: Any, folder: Path
) -> None:
    for _ in range(3):
        history.publish_next()
    receiver, status = make(history, engine, folder)
    receiver.boot(threading.Event())
    assert report(status, engine).state is PoolState.STARTING
    receiver.follow()
    assert engine.swaps == [3]
    assert serves(engine, history.states[3])
    now = report(status, engine)
    assert (now.state, now.version, now.detail) == (PoolState.SERVING, 3, None)
    assert now.base_state_id == history.versions[0].state_id
    (proof,) = now.attestations
    assert (proof.version, proof.state_id) == (3, history.versions[3].state_id)
    shipped = sum(version.bytes_shipped for version in history.versions[1:])
    assert proof.bytes_fetched == shipped


def test_each_version_is_served_and_attested_once(history: Any, engine: Any, folder: Path) -> None:
    receiver, status = booted(history, engine, folder)
    for number in (1, 2):
        history.publish_next()
        receiver.follow()
        receiver.follow()
        assert serves(engine, history.states[number])
    assert engine.swaps == [1, 2]
    sent = report(status, engine).attestations
    assert [proof.version for proof in sent] == [0, 1, 2]
    assert [proof.state_id for proof in sent] == [v.state_id for v in history.versions]
    assert sent[1].pause_ms == pytest.approx(1.0)
    status.acknowledge([0, 1])
    assert [proof.version for proof in report(status, engine).attestations] == [2]


def test_a_late_pool_whose_missing_singles_are_gone_comes_from_the_base(
    history: Any, engine: Any, folder: Path
) -> None:
    receiver, status = booted(history, engine, folder)
    history.publish_next()
    receiver.follow()
    for _ in range(3):
        history.publish_next()
    shutil.rmtree(history.folder / "frames")
    ladder = Ladder(history.bucket, "desk", State.of(0, history.states[0]))
    ladder.offer(history.versions[4], history.states[4])
    assert ladder.close(60).published == 1
    receiver.follow()
    assert engine.swaps == [1, 4]
    assert serves(engine, history.states[4])
    assert report(status, engine).attestations[-1].state_id == history.versions[4].state_id


def test_a_pool_with_another_base_model_is_told_which_tensor_differs(
    history: Any, engine: Any, folder: Path
) -> None:
    other = {**history.states[0], "norm.weight": np.zeros(16, np.float32)}
    write_file(folder / "model.safetensors", TensorSet(other))
    receiver, _ = make(history, engine, folder)
    with pytest.raises(UserError, match=r"another base model .* norm\.weight"):
        receiver.boot(threading.Event())


def test_a_pool_of_another_run_does_not_start(history: Any, engine: Any, folder: Path) -> None:
    receiver, _ = make(history, engine, folder, run_id="other")
    with pytest.raises(UserError, match="belongs to another run"):
        receiver.boot(threading.Event())


def test_waiting_for_a_run_that_never_starts_ends_with_a_sentence(
    history: Any, engine: Any, folder: Path, tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path / "bucket" / "latest")
    receiver, _ = make(history, engine, folder, base_wait_s=1e-9, poll_s=1e-3)
    with pytest.raises(UserError, match="no base version appeared"):
        receiver.boot(threading.Event())


def test_a_damaged_version_is_refused_and_served_after_repair(
    history: Any, engine: Any, folder: Path
) -> None:
    receiver, status = booted(history, engine, folder)
    history.publish_next()
    receiver.follow()
    history.publish_next()
    frame = history.frame_of_last()
    good = frame.read_bytes()
    frame.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    receiver.follow()
    now = report(status, engine)
    assert (now.state, now.version) == (PoolState.REFUSING, 1)
    assert now.detail is not None and "digest" in now.detail
    assert engine.swaps == [1]
    assert serves(engine, history.states[1])
    frame.write_bytes(good)
    receiver.follow()
    now = report(status, engine)
    assert (now.state, now.version, now.detail) == (PoolState.SERVING, 2, None)
    assert serves(engine, history.states[2])


def test_a_good_newer_version_ends_a_refusal(history: Any, engine: Any, folder: Path) -> None:
    receiver, status = booted(history, engine, folder)
    history.publish_next()
    (history.folder / "latest" / "00000001").write_bytes(b"{}")
    receiver.follow()
    assert report(status, engine).state is PoolState.REFUSING
    (history.folder / "latest" / "00000001").write_bytes(  # announced by another path: no repair
        b'{"digest":"' + b"0" * 64 + b'","key":"manifests/00000001-0.json"}'
    )
    good = history.publisher
    history.publisher = _Unchecked(good, history)
    history.publish_next()
    receiver.follow()
    now = report(status, engine)
    assert (now.state, now.version) == (PoolState.SERVING, 2)
    assert serves(engine, history.states[2])


class _Unchecked:
    """Announces without looking at the parent's pointer, which the test has damaged."""

    def __init__(self, publisher: Any, history: Any) -> None:
        self.publish = publisher.publish
        self._publisher, self._history = publisher, history

    def announce(self, version: Any) -> None:
        ref = self._publisher._ref_of(version)
        name = f"latest/{version.version:08d}"
        self._history.bucket.put_new(name, pointer_to(name, ref, None).to_bytes())


def test_a_refused_version_is_not_tried_again_at_every_look(
    history: Any, engine: Any, folder: Path
) -> None:
    receiver, status = make(history, engine, folder, retry_s=1000, retry_max_s=1000)
    receiver.boot(threading.Event())
    receiver.follow()
    history.publish_next()
    frame = history.frame_of_last()
    good = frame.read_bytes()
    frame.write_bytes(b"")
    receiver.follow()
    frame.write_bytes(good)
    receiver.follow()
    assert report(status, engine).state is PoolState.REFUSING
    history.publish_next()
    receiver.follow()
    assert report(status, engine).version == 2


def test_an_engine_that_serves_other_bytes_gets_the_old_ones_back(
    history: Any, engine: Any, folder: Path
) -> None:
    receiver, status = booted(history, engine, folder)
    history.publish_next()

    def spoil(served: dict[str, np.ndarray]) -> None:
        if engine.version == 1:
            served["embed.weight"][0, 0] ^= 1

    engine.spoil = spoil
    receiver.follow()
    now = report(status, engine)
    assert (now.state, now.version) == (PoolState.REFUSING, 0)
    assert now.detail is not None and "embed.weight" in now.detail
    # the spoilt tensor is part of the version, so it was put back with it
    assert engine.swaps == [1, 0]
    assert serves(engine, history.states[0])
    engine.spoil = None
    receiver.follow()
    assert report(status, engine).version == 1
    assert serves(engine, history.states[1])


def test_an_engine_whose_weights_nobody_published_must_be_started_again(
    history: Any, engine: Any, folder: Path
) -> None:
    receiver, _ = booted(history, engine, folder)
    history.publish_next()
    engine.spoil = lambda served: served.update({"norm.weight": np.zeros(16, np.float32)})
    with pytest.raises(EngineLost, match="rebuilt from the base fails its proof"):
        receiver.follow()


def test_what_the_engine_cannot_take_is_refused(history: Any, engine: Any, folder: Path) -> None:
    receiver, status = booted(history, engine, folder)
    history.publish_next()
    engine.refuse = "embed.weight has another shape"
    receiver.follow()
    now = report(status, engine)
    assert (now.state, now.version) == (PoolState.REFUSING, 0)
    assert now.detail is not None and "embed.weight has another shape" in now.detail


def test_a_bucket_out_of_reach_is_told_and_serving_goes_on(
    history: Any, engine: Any, folder: Path, tmp_path: Path
) -> None:
    receiver, status = booted(history, engine, folder)
    (tmp_path / "bucket").rename(tmp_path / "away")
    (tmp_path / "bucket").write_text("not a folder")
    receiver.follow()
    now = report(status, engine)
    assert now.state is PoolState.SERVING
    assert now.detail is not None and "bucket cannot be" in now.detail
    (tmp_path / "bucket").unlink()
    (tmp_path / "away").rename(tmp_path / "bucket")
    history.publish_next()
    receiver.follow()
    now = report(status, engine)
    assert (now.version, now.detail) == (1, None)


def test_a_dead_engine_ends_the_pool(history: Any, engine: Any, folder: Path) -> None:
    receiver, _ = booted(history, engine, folder)
    engine.error = "the engine died: out of memory"
    with pytest.raises(EngineLost, match="out of memory"):
        receiver.follow()


def test_tensors_that_the_engine_never_reads_do_not_spoil_the_proof(
    history: Any, engine: Any, folder: Path
) -> None:
    del engine.tensors["norm.weight"]
    _, status = booted(history, engine, folder)
    assert report(status, engine).version == 0


def test_an_engine_with_a_tensor_of_its_own_is_refused(
    history: Any, engine: Any, folder: Path
) -> None:
    engine.tensors["extra"] = np.zeros(1, np.float32)
    receiver, status = make(history, engine, folder)
    receiver.boot(threading.Event())
    receiver.follow()
    now = report(status, engine)
    assert now.state is PoolState.STARTING
    assert now.detail is not None and "extra" in now.detail


def test_the_report_carries_the_engines_load(history: Any, engine: Any, folder: Path) -> None:
    _, status = booted(history, engine, folder)
    load = EngineLoad(
        running=3, waiting=2, max_batch=8, tokens_per_s=10.5, dtype="bfloat16", version=0
    )
    now = status.report(load)
    assert (now.running, now.waiting, now.max_batch) == (3, 2, 8)
    assert (now.tokens_per_s, now.dtype) == (10.5, "bfloat16")
