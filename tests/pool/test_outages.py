"""A pool whose bucket is out of reach, and a run that learns nothing: it serves, and says why."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tradewind.pool.config import PoolConfig
from tradewind.pool.gate import Gate
from tradewind.pool.receiver import Receiver
from tradewind.pool.status import PoolStatus
from tradewind.types import PoolReport, PoolState, UserError
from tradewind.weights.bucket import Bucket
from tradewind.weights.checkpoint import read_folder
from tradewind.weights.probe import Probe
from tradewind.weights.state import State


class Outage(Bucket):
    """A bucket that fails the next `left` calls."""

    def __init__(self, bucket: Bucket) -> None:
        super().__init__(bucket.url, bucket._store)
        self.left = 0

    def get(self, key: str, *, limit: int) -> bytes:
        self._fail()
        return super().get(key, limit=limit)

    def list(self, prefix: str, *, after: str | None = None) -> list[str]:
        self._fail()
        return super().list(prefix, after=after)

    def _fail(self) -> None:
        if self.left:
            self.left -= 1
            raise UserError("the bucket cannot be read (503)", value=self.url, fix="wait")


class Pool:
    def __init__(self, history: Any, engine: Any, folder: Path, **config: Any) -> None:
        self.bucket, self.engine = Outage(history.bucket), engine
        self.status = PoolStatus("paris", "http://x", history.versions[0].state_id)
        self.receiver = Receiver(
            Gate(engine),
            self.bucket,
            self.status,
            PoolConfig(poll_s=1e-6, **config),
            lambda: State.of(0, read_folder(folder)),
        )

    def look(self) -> PoolReport:
        self.receiver.follow()
        return self.report()

    def report(self) -> PoolReport:
        return self.status.report(self.engine.load())


def test_a_pool_that_starts_during_an_outage_waits_for_its_end(
    history: Any, engine: Any, folder: Path
) -> None:
    pool = Pool(history, engine, folder)
    pool.bucket.left = 20
    pool.receiver.boot(threading.Event())
    assert pool.bucket.left == 0
    assert pool.look().state is PoolState.SERVING


def test_an_outage_that_does_not_end_ends_the_start_with_its_reason(
    history: Any, engine: Any, folder: Path
) -> None:
    pool = Pool(history, engine, folder, base_wait_s=1e-6)
    pool.bucket.left = 10**9
    with pytest.raises(UserError, match="503"):
        pool.receiver.boot(threading.Event())
    assert "waits for the bucket: the bucket cannot be read (503)" in str(pool.report().detail)


@pytest.mark.parametrize("calls_before", range(5))
def test_an_outage_at_any_call_leaves_the_old_version_serving(
    history: Any, engine: Any, folder: Path, calls_before: int
) -> None:
    pool = Pool(history, engine, folder)
    pool.receiver.boot(threading.Event())
    assert pool.look().version == 0
    history.publish_next()
    history.publish_next()
    fail, count = pool.bucket._fail, [0]

    def later() -> None:
        count[0] += 1
        if count[0] > calls_before:
            pool.bucket.left = 1
        fail()

    pool.bucket._fail = later  # type: ignore[method-assign]
    report = pool.look()
    assert (report.state, report.version) == (PoolState.SERVING, 0)
    assert "503" in str(report.detail)
    assert engine.swaps == []
    pool.bucket._fail, pool.bucket.left = fail, 0  # type: ignore[method-assign]
    report = pool.look()
    assert (report.state, report.version, report.detail) == (PoolState.SERVING, 2, None)


def test_a_run_that_learns_nothing_is_served_and_proven_version_by_version(
    history: Any, engine: Any, folder: Path
) -> None:
    pool = Pool(history, engine, folder)
    pool.receiver.boot(threading.Event())
    assert pool.look().version == 0
    base, ids = history.states[0], ((3, 1, 4, 1, 5), (9, 2, 6))
    probes = tuple(Probe.of(row, history.score(base, row)) for row in ids)
    for number in (1, 2, 3):
        version = history.publisher.publish(
            number, history.versions[-1], base, base, "rl", step=number, probes=probes
        )
        history.publisher.announce(version)
        history.versions.append(version)
        report = pool.look()
        assert (report.state, report.version, report.detail) == (PoolState.SERVING, number, None)
        proof = report.attestations[-1]
        assert (proof.version, proof.state_id) == (number, history.versions[0].state_id)
        assert proof.probe_max == 0.0
        assert not report.quarantined
