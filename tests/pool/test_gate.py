"""No token of an unproven version leaves a pool, and who waits for one ends right."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tradewind.pool.config import PoolConfig
from tradewind.pool.engine import PutBack
from tradewind.pool.engines.embedded.engine import EmbeddedEngine
from tradewind.pool.gate import Gate
from tradewind.pool.receiver import EngineLost, Receiver
from tradewind.pool.status import PoolStatus
from tradewind.types import (
    FinishReason,
    GenerateChunk,
    GenerateRequest,
    PoolState,
    Priority,
)
from tradewind.weights.checkpoint import read_folder
from tradewind.weights.state import State

WAIT_S = 60
FOREVER = 10**9
KINDS = (Priority.USER, Priority.ROLLOUT)


class Client:
    """Requests through the gate, and what came of each."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.chunks: dict[str, list[GenerateChunk]] = {}
        self._bell = threading.Condition()

    def ask(self, name: str, tokens: int, prompt: tuple[int, ...] = (1, 2), **more: Any) -> None:
        request = GenerateRequest(
            request_id=name, prompt_ids=prompt, max_tokens=tokens, stop_ids=(), **more
        )
        self.chunks[name] = []
        self.gate.submit(request, lambda chunk: self._hear(name, chunk))

    def _hear(self, name: str, chunk: GenerateChunk) -> None:
        with self._bell:
            self.chunks[name].append(chunk)
            self._bell.notify_all()

    def until(self, condition: Callable[[], bool]) -> None:
        with self._bell:
            assert self._bell.wait_for(condition, WAIT_S), self.chunks

    def ids(self, name: str) -> list[int]:
        return [i for chunk in self.chunks[name] for i in chunk.ids]

    def versions(self, name: str) -> set[int]:
        return {chunk.version for chunk in self.chunks[name] if chunk.ids}

    def signs(self, name: str) -> int:
        """Chunks that say nothing but that it lives."""
        return sum(not (c.ids or c.finish_reason or c.error) for c in self.chunks[name])

    def ended(self, name: str) -> bool:
        return any(chunk.finish_reason or chunk.error for chunk in self.chunks[name])


class Pool:
    """A receiver over the fake engine that serves version 1, and clients of it.

    `during_proof` runs in each proof of arithmetic, while the engine decodes.
    """

    def __init__(self, history: Any, engine: Any, folder: Path) -> None:
        history.ids = ((3, 1, 4, 1, 5),)
        self.history, self.engine, self.gate = history, engine, Gate(engine, sign_s=0.002)
        self.status = PoolStatus("paris", "http://x", history.versions[0].state_id)
        config = PoolConfig(retry_s=1e-9, retry_max_s=1e-9)
        self.receiver = Receiver(
            self.gate,
            history.bucket,
            self.status,
            config,
            lambda: State.of(0, read_folder(folder)),
        )
        self.receiver.boot(threading.Event())
        self.receiver.follow()
        self.next()
        self.client = Client(self.gate)
        self.during_proof: Callable[[], None] = lambda: None
        self._score = engine.score
        engine.score = self._scored

    def _scored(self, sequences: Any) -> Any:
        self.during_proof()
        return self._score(sequences)

    def next(self) -> Any:
        self.history.publish_next()
        self.receiver.follow()
        return self.report()

    def report(self) -> Any:
        return self.status.report(self.gate.load())

    def holds(self, tokens: int = 5) -> None:
        """Until so many tokens wait in the gate."""
        tick = threading.Event()
        for _ in range(WAIT_S * 1000):
            if self.gate.load().held >= tokens:
                return
            tick.wait(0.001)
        raise AssertionError("the engine samples nothing")


@pytest.fixture
def pool(history: Any, engine: Any, folder: Path) -> Pool:
    return Pool(history, engine, folder)


def started(pool: Pool) -> None:
    for kind in KINDS:
        pool.client.ask(kind.name, FOREVER, priority=kind)
        pool.client.until(lambda kind=kind: bool(pool.client.chunks[kind.name]))  # type: ignore[misc]


def test_tokens_of_a_version_leave_before_its_proof(pool: Pool) -> None:
    client = pool.client
    started(pool)
    said: list[str | None] = []

    def look() -> None:
        pool.holds()
        said.append(pool.report().detail)
        client.until(lambda: all(client.signs(kind.name) > 3 for kind in KINDS))
        assert all(client.versions(kind.name) == {1} for kind in KINDS)

    pool.during_proof = look
    assert pool.next().version == 2
    assert said and "tokens wait for the proof of a new version" in (said[0] or "")
    for kind in KINDS:
        client.until(lambda kind=kind: client.versions(kind.name) == {1, 2})  # type: ignore[misc]
        pool.gate.cancel(kind.name)
        client.until(lambda kind=kind: client.ended(kind.name))  # type: ignore[misc]
        ids = client.ids(kind.name)
        assert ids == list(range(len(ids))), "in order, and none is lost"
    report = pool.report()
    assert report.detail is None and report.proof_ms > 0 and pool.gate.load().held == 0


def test_a_version_that_fails_its_proof_answers_requests(pool: Pool) -> None:
    client, engine = pool.client, pool.engine
    started(pool)
    client.ask("short", 40)

    def look() -> None:
        if engine.version == 2:
            pool.holds()
            client.ask("late", 3)  # a request that has never seen another version
        elif engine.version == 1:  # the old version is back, and not proven yet
            client.ask("parked", 3)

    pool.during_proof = look
    engine.miscompute = lambda p: p - 1 if engine.version == 2 else p
    report = pool.next()
    assert (report.state, report.version) == (PoolState.REFUSING, 1)
    for name in (*(kind.name for kind in KINDS), "late"):
        assert client.versions(name) <= {1}
        last = client.chunks[name][-1]
        assert last.ids == () and "version 2 was taken back" in (last.error or "")
        assert [c for c in client.chunks[name] if c.finish_reason or c.error] == [last]
    client.until(lambda: client.ended("parked"))
    assert client.versions("parked") == {1} and client.ids("parked") == [0, 1, 2]
    assert client.versions("short") <= {1}
    assert engine.load().running == 0 and not pool.gate._entries, "nothing runs for nobody"
    pool.during_proof = lambda: None
    engine.miscompute = lambda p: p
    pool.receiver.follow()
    assert pool.report().version == 2
    client.ask("after", 3)
    client.until(lambda: client.ended("after"))
    assert client.versions("after") == {2}


def test_a_request_that_only_the_gate_keeps_waiting_is_taken_for_dead(pool: Pool) -> None:
    """The engine has finished with it, or has never heard of it: it can give no sign of life."""
    engine, client = pool.engine, pool.client

    def look() -> None:
        name = "finished" if engine.version == 2 else "parked"
        client.ask(name, 3)
        if name == "finished":
            pool.holds(3)
        assert engine.load().running == 0
        client.until(lambda: client.signs(name) > 3)

    pool.during_proof = look
    engine.miscompute = lambda p: p - 1 if engine.version == 2 else p
    assert pool.next().version == 1
    client.until(lambda: client.ended("parked"))
    assert client.ids("parked") == [0, 1, 2] and not client.ids("finished")
    signs = client.signs("parked")
    client.ask("after", 30)
    client.until(lambda: client.ended("after"))
    assert (client.signs("after"), client.signs("parked")) == (0, signs), "the gate is open"


def test_a_request_cancelled_while_it_waits_for_a_proven_version_is_kept(pool: Pool) -> None:
    engine, client = pool.engine, pool.client

    def look() -> None:
        if engine.version == 1:
            client.ask("parked", 3)
            assert pool.gate.load().waiting == 1
            pool.gate.cancel("parked")

    pool.during_proof = look
    engine.miscompute = lambda p: p - 1 if engine.version == 2 else p
    pool.next()
    last = client.chunks["parked"][-1]
    assert last.finish_reason is FinishReason.CANCELLED


def test_a_rebuilt_engine_answers_before_its_proof(pool: Pool) -> None:
    engine, client = pool.engine, pool.client
    started(pool)
    follower = pool.receiver._follower
    assert follower is not None
    follower.mirror["embed.weight"].reshape(-1)[5] ^= 1
    seen: list[int] = []

    def look() -> None:
        before = {kind: len(client.ids(kind.name)) for kind in KINDS}
        pool.holds()
        assert {kind: len(client.ids(kind.name)) for kind in KINDS} == before
        seen.append(engine.version)

    pool.during_proof = look
    assert pool.next().rebuilds == 1 and seen == [1]
    for kind in KINDS:
        assert client.versions(kind.name) == {1} and not client.ended(kind.name)


def test_tokens_of_an_engine_that_is_given_up_leave(pool: Pool) -> None:
    engine, client = pool.engine, pool.client
    started(pool)
    pool.during_proof = lambda: pool.holds() if engine.version == 2 else None
    engine.miscompute = lambda p: p - 1
    with pytest.raises(EngineLost):
        pool.next()
    client.ask("late", 3)
    pool.gate.stop()
    assert all(client.versions(name) <= {1} and client.ended(name) for name in client.chunks)


def test_a_swap_that_the_engine_refuses_ends_requests(pool: Pool) -> None:
    engine, client = pool.engine, pool.client
    started(pool)
    engine.refuse = "embed.weight has another shape"
    assert pool.next().state is PoolState.REFUSING
    had = len(client.ids("USER"))
    client.until(lambda: len(client.ids("USER")) > had + 3)
    assert not client.ended("USER") and not client.ended("ROLLOUT")


def test_a_swap_that_fails_in_the_middle_is_not_proven_again(pool: Pool) -> None:
    engine, client = pool.engine, pool.client
    started(pool)
    swap = engine.swap

    def fail(changed: Any, version: int, afresh: bool = False) -> float:
        if version == 2:
            raise PutBack("vLLM could not apply version 2", fix="none")
        paused: float = swap(changed, version, afresh)
        return paused

    engine.swap = fail
    scored = engine.scored
    assert pool.next().version == 1
    assert engine.scored == scored + 1, "the old version is proven again"
    for kind in KINDS:
        assert "version 2 was taken back" in (client.chunks[kind.name][-1].error or "")
    engine.swap = swap
    pool.receiver.follow()
    assert pool.report().version == 2


@pytest.mark.parametrize("policy", ["keep", "recompute"])
def test_an_answer_begun_before_a_failed_version_is_another_than_without_it(
    tiny_llama: Any, policy: str
) -> None:
    """The embedded engine; who is told that the version was taken back goes on with what it has."""
    history, folder = tiny_llama
    options: dict[str, Any] = {"dtype": "float32", "threads": 1, "max_tokens": 1024}
    engine = EmbeddedEngine.open(folder, **options, kv_policy=policy)
    gate = Gate(engine)
    status = PoolStatus("paris", "http://x", history.versions[0].state_id)
    receiver = Receiver(
        gate,
        history.bucket,
        status,
        PoolConfig(retry_s=1e-9, retry_max_s=1e-9),
        lambda: State.of(0, read_folder(folder)),
    )
    history.ids = ((3, 1, 4, 1, 5),)
    history.score = lambda tensors, ids: [-1.0] * (len(ids) - 1)  # nobody computes these
    client = Client(gate)
    score, held = engine.score, []

    def slow(sequences: Any) -> Any:
        target = engine.steps + 20
        tick = threading.Event()
        while engine.steps < target and engine.load().running:
            tick.wait(0.001)
        held.append(gate.load().held)
        return score(sequences)

    try:
        receiver.boot(threading.Event())
        receiver.follow()
        for kind in KINDS:  # what is right: version 0 alone
            client.ask(f"whole {kind.name}", 200, priority=kind, temperature=0)
        client.until(lambda: all(client.ended(f"whole {kind.name}") for kind in KINDS))
        engine.score = slow  # type: ignore[method-assign]
        for kind in KINDS:
            client.ask(kind.name, 200, priority=kind, temperature=0)
        client.until(lambda: all(client.chunks[kind.name] for kind in KINDS))
        history.publish_next()
        receiver.follow()
        report = status.report(gate.load())
        assert (report.state, report.version) == (PoolState.REFUSING, 0)
        assert held[0] > 0, "the version was sampled with before its proof failed"
        for kind in KINDS:
            name, got = kind.name, client.ids(kind.name)
            assert client.versions(name) == {0}
            assert "version 1 was taken back" in (client.chunks[name][-1].error or "")
            rest = f"rest {name}"
            client.ask(rest, 200 - len(got), prompt=(1, 2, *got), priority=kind, temperature=0)
            client.until(lambda rest=rest: client.ended(rest))  # type: ignore[misc]
            assert got + client.ids(rest) == client.ids(f"whole {name}")
            assert client.versions(rest) == {0}
    finally:
        engine.stop()
