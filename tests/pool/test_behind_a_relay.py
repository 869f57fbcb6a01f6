"""A receiver behind a relay that dies and comes back: it serves every version all the same."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tradewind.pool.config import PoolConfig
from tradewind.pool.gate import Gate
from tradewind.pool.receiver import Receiver
from tradewind.pool.status import PoolStatus
from tradewind.relay.config import RelayConfig
from tradewind.relay.main import serve
from tradewind.types import PoolState
from tradewind.weights.checkpoint import read_folder
from tradewind.weights.relayed import AVOID_S, KEY_NAME, Relayed
from tradewind.weights.state import State

KEY, WAIT_S = "relay-key", 60


class RelayThread:
    def __init__(self, config: RelayConfig) -> None:
        self._told = threading.Event()
        self._thread = threading.Thread(target=serve, args=(config, self._ready), daemon=True)
        self._thread.start()
        assert self._told.wait(WAIT_S)

    def _ready(self, url: str, leave: Callable[[], None]) -> None:
        self.url, self._leave = url, leave
        self._told.set()

    def stop(self) -> None:
        self._leave()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()


@pytest.fixture
def relay(
    history: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RelayThread]:
    monkeypatch.setenv(KEY_NAME, KEY)
    made = RelayThread(
        RelayConfig(bucket=history.url, model=folder, cache=tmp_path / "cache", port=0, names_s=0)
    )
    yield made
    if made._thread.is_alive():
        made.stop()


def test_a_pool_serves_every_version_although_its_relay_dies(
    history: Any, engine: Any, folder: Path, relay: RelayThread
) -> None:
    now = [0.0]
    source = Relayed(relay.url, KEY, history.bucket, clock=lambda: now[0])
    status = PoolStatus("paris", "http://127.0.0.1:1", history.versions[0].state_id)
    receiver = Receiver(
        Gate(engine), source, status, PoolConfig(), lambda: State.of(0, read_folder(folder))
    )

    def follows(version: int) -> str | None:
        receiver.follow()
        said = status.report(engine.load())
        assert (said.state, said.version) == (PoolState.SERVING, version)
        assert said.attestations[-1].state_id == history.versions[version].state_id
        return said.detail

    receiver.boot(threading.Event())
    assert follows(0) is None
    for _ in range(3):
        history.publish_next()
    assert follows(3) is None
    relay.stop()
    history.publish_next()
    detail = follows(4)
    assert detail is not None
    assert "cannot be used" in detail and "the bucket is asked" in detail
    now[0] += AVOID_S + 1
    assert "cannot be used" in str(follows(4)), "still down"
    source.close()
