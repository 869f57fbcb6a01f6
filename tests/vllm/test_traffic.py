"""Admission, on a client that answers when it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, cast

import pytest
from events import event

from tradewind.pool.engines.vllm.client import VllmClient, VllmFailed
from tradewind.pool.engines.vllm.pending import Pending
from tradewind.pool.engines.vllm.traffic import Traffic
from tradewind.types import FinishReason, GenerateChunk, GenerateRequest, Priority

WAIT_S = 10


class FakeClient:
    """Every stream gives one token, then waits for `go`, gives `between`, then ends."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.bodies: list[dict[str, Any]] = []
        self.aborted: list[str] = []
        self.between: list[int] = []
        self.fail: str | None = None
        self.version = 0

    async def stream(self, body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        self.bodies.append(body)
        yield event([1])
        await self.go.wait()
        if self.fail:
            raise VllmFailed(self.fail)
        for token in self.between:
            yield event([token])
        name = f"generate-tokens-{body['request_id']}"
        reason = "abort" if name in self.aborted else "length"
        yield event([2], reason, [(self.version, 0, 2 + len(self.between))])

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert path == "/inference/v1/abort_requests"
        self.aborted += body["request_ids"]
        self.go.set()
        return {}


class World:
    """Traffic for 8 rollouts, so that one row is kept for users."""

    def __init__(self) -> None:
        self.client = FakeClient()
        self.traffic = Traffic(cast(VllmClient, self.client), 8)
        self.traffic.release(0, "0.0")
        self.chunks: dict[str, list[GenerateChunk]] = {}
        self._order = 0

    def ask(self, name: str, priority: Priority = Priority.ROLLOUT) -> None:
        self.chunks.setdefault(name, [])
        request = GenerateRequest(
            request_id=name, prompt_ids=(1,), max_tokens=2, stop_ids=(), priority=priority
        )
        self._order += 1
        self.traffic.add(Pending(request, self.chunks[name].append, self._order, 2))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                await asyncio.sleep(0)

    async def sent(self, count: int) -> None:
        await self.until(lambda: len(self.client.bodies) == count)

    async def ended(self, name: str) -> None:
        await self.until(lambda: any(c.finish_reason or c.error for c in self.chunks[name]))

    def last(self, name: str) -> GenerateChunk:
        return self.chunks[name][-1]


def run(play: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        world = World()
        try:
            await play(world)
        finally:
            await world.traffic.close(None)

    asyncio.run(whole())


def test_a_user_has_a_row_although_rollouts_fill_the_batch() -> None:
    async def play(world: World) -> None:
        for i in range(12):
            world.ask(f"r{i}")
        await world.sent(8)
        world.ask("u1", Priority.USER)
        world.ask("u2", Priority.USER)
        await world.sent(9)
        assert world.client.bodies[-1]["request_id"].endswith("-u1")
        assert (world.traffic.running, world.traffic.waiting) == (9, 5)
        world.client.go.set()
        await world.sent(14)
        order = [body["request_id"].partition("-")[2] for body in world.client.bodies[9:]]
        assert order == ["u2", "r8", "r9", "r10", "r11"]

    run(play)


def test_nobody_is_admitted_during_a_swap_and_then_under_another_salt() -> None:
    async def play(world: World) -> None:
        world.ask("before")
        await world.sent(1)
        world.traffic.hold(1)
        world.ask("after")
        world.client.go.set()
        await world.ended("before")
        assert len(world.client.bodies) == 1
        world.client.version = 1
        world.traffic.release(1, "1.5")
        await world.ended("after")
        assert [body["cache_salt"] for body in world.client.bodies] == ["0.0", "1.5"]
        assert {c.version for c in world.chunks["after"]} == {1}

    run(play)


def test_a_users_tokens_that_arrive_during_a_swap_count_as_the_old_versions() -> None:
    """vLLM has resumed before it is known here: what comes then may be the new weights'."""

    async def play(world: World) -> None:
        world.client.between = [7]
        world.ask("user", Priority.USER)
        await world.until(lambda: bool(world.chunks["user"]))
        world.traffic.hold(1)
        world.client.go.set()
        await world.until(lambda: len(world.chunks["user"]) > 1)
        assert [chunk.version for chunk in world.chunks["user"][:2]] == [0, 1]
        assert world.traffic.version == 0

    run(play)


def test_cancel_ends_those_who_wait_and_those_who_run() -> None:
    async def play(world: World) -> None:
        for i in range(9):
            world.ask(f"r{i}")
        await world.sent(8)
        world.traffic.cancel("r8")
        assert world.last("r8").finish_reason is FinishReason.CANCELLED
        world.traffic.cancel("r3")
        world.traffic.cancel("nobody")
        await world.until(lambda: world.traffic.running == 0)
        assert world.last("r3").finish_reason is FinishReason.CANCELLED
        assert world.last("r4").finish_reason is FinishReason.LENGTH
        assert len(world.client.aborted) == 1

    run(play)


def test_cancel_of_a_request_that_ends_at_this_moment_fails_unheard() -> None:
    async def play(world: World) -> None:
        world.ask("a")
        await world.sent(1)
        world.client.go.set()
        world.traffic.cancel("a")  # its end is read before vLLM can be asked to abort it
        await world.until(lambda: bool(world.client.aborted))
        assert world.last("a").finish_reason is FinishReason.LENGTH
        assert world.traffic.running == 0

    run(play)


def test_a_turn_that_is_asked_for_twice_is_refused_while_the_first_runs() -> None:
    async def play(world: World) -> None:
        world.ask("a")
        await world.sent(1)
        world.ask("a")
        assert "running already" in (world.last("a").error or "")

    run(play)


def test_what_vllm_breaks_off_is_an_error_of_that_request_alone() -> None:
    async def play(world: World) -> None:
        world.ask("a")
        await world.sent(1)
        world.client.fail = "vLLM broke off"
        world.client.go.set()
        await world.until(lambda: world.traffic.running == 0)
        assert world.last("a").error == "vLLM broke off"
        world.client.fail = None
        world.ask("b")
        await world.ended("b")
        assert world.last("b").error is None

    run(play)


@pytest.mark.parametrize("error", [None, "vLLM is dead"])
def test_at_the_end_everybody_is_told_once(error: str | None) -> None:
    async def play(world: World) -> None:
        for i in range(10):
            world.ask(f"r{i}")
        await world.sent(8)
        await world.traffic.close(error)
        world.ask("late")
        lasts = [world.last(f"r{i}") for i in range(10)]
        assert {chunk.error for chunk in lasts} == {error}
        assert world.last("late").error == (error or "the engine was stopped")
        for chunks in world.chunks.values():
            assert sum(c.error is not None or c.finish_reason is not None for c in chunks) == 1

    run(play)
