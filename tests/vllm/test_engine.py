"""The engine on vLLM's CPU build as it comes: linear weights packed, updates dense.

One vLLM for all of these; what the embedded engine computes in fp32 is the reference.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from smallmodel import stepped
from tinyllm import Listener
from world import BOUND, PROMPT, World

from tradewind.pool.config import PoolConfig
from tradewind.pool.engine import ByteProof, PutBack
from tradewind.pool.engines.vllm.client import VllmFailed
from tradewind.pool.engines.vllm.patch import Way
from tradewind.pool.engines.vllm.weights import Parcel
from tradewind.pool.gate import Gate
from tradewind.pool.receiver import Receiver
from tradewind.pool.status import PoolStatus
from tradewind.types import FinishReason, PoolState, Priority, RefusedWeights, UserError
from tradewind.weights.bucket import Bucket
from tradewind.weights.digest import root, state_id
from tradewind.weights.probe import Probe
from tradewind.weights.publish import Publisher
from tradewind.weights.state import State

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(300)]

CONTEXT = 2048
LONG = 1500
"""Tokens of a request during which something happens: seconds, also on a fast machine."""


def test_both_engines_say_the_same(world: World) -> None:
    for prompt in ((1, 2, 3), (300, 4, 17, 250), PROMPT):
        assert world.compare(prompt) == {world.version}


def test_scores_are_those_of_the_embedded_engine(world: World) -> None:
    sequences = [PROMPT, (1, 2), (5, 300, 7, 9, 200)]
    for ours, theirs in zip(
        world.vllm.score(sequences), world.embedded.score(sequences), strict=True
    ):
        assert max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) < BOUND
    with pytest.raises(UserError, match="vocabulary"):
        world.vllm.score([(1, 999)])


def test_a_sampled_id_has_the_logprob_with_which_it_was_sampled(world: World) -> None:
    name = world.name()
    world.asked.ask(name, PROMPT, 20, temperature=1.0, seed=5)
    world.asked.wait()
    ids = world.asked.ids(name)
    (scores,) = world.embedded.score([(*PROMPT, *ids)])
    pairs = zip(world.asked.logprobs(name), scores[len(PROMPT) - 1 :], strict=True)
    assert max(abs(a - b) for a, b in pairs) < BOUND
    again = world.name()
    world.asked.ask(again, PROMPT, 20, temperature=1.0, seed=5)
    world.asked.wait()
    assert world.asked.ids(again) == ids


def test_a_stop_id_ends_a_request_and_is_its_last(world: World) -> None:
    name, stopped, full = world.name(), world.name(), world.name()
    world.asked.ask(name, PROMPT, 10)
    world.asked.wait()
    ids = world.asked.ids(name)
    world.asked.ask(stopped, PROMPT, 10, stop_ids=(ids[4],))
    world.asked.ask(full, (1,) * (CONTEXT - 12), 100)
    world.asked.wait()
    assert world.asked.ids(stopped) == ids[: ids.index(ids[4]) + 1]
    assert world.asked.last(stopped).finish_reason is FinishReason.STOP
    assert len(world.asked.ids(full)) == 12
    assert world.asked.last(full).finish_reason is FinishReason.LENGTH


def test_a_request_that_would_kill_vllm_is_an_error_of_its_own(world: World) -> None:
    name = world.name()
    world.asked.ask(name, (1, 9999), 5)
    world.asked.wait()
    assert "vocabulary" in (world.asked.last(name).error or "")
    world.compare()


def test_this_build_cannot_give_its_tensors_back_and_says_so(world: World) -> None:
    served = world.vllm.served()
    assert (world.vllm.way, served.proof) == (Way.DENSE, ByteProof.AS_LOADED)
    assert root(served.leaves) == state_id(world.tensors)


def started(world: World, priority: Priority, tokens: int) -> str:
    """A request of which the first tokens have come."""
    name, began = world.name(), threading.Event()
    world.asked.hooks.append(lambda said, _: began.set() if said == name else None)
    world.asked.ask(name, PROMPT, tokens, priority=priority)
    assert began.wait(60)
    return name


def test_running_requests_go_on_and_their_later_tokens_carry_the_new_version(world: World) -> None:
    for _ in range(10):  # a fast vLLM may be done before a busy machine has staged the version
        names = [started(world, p, LONG) for p in (Priority.USER, Priority.ROLLOUT)]
        before = world.version
        world.step()
        world.asked.wait()
        if all(len(set(world.asked.versions(name))) == 2 for name in names):
            break
    for name in names:
        versions = world.asked.versions(name)
        assert len(versions) == LONG
        assert set(versions) == {before, world.version}, "the swap came while it ran"
        assert versions == sorted(versions)
        assert world.asked.last(name).finish_reason is FinishReason.LENGTH


def test_a_new_request_sees_nothing_of_the_old_version(world: World) -> None:
    """Its prompt is in the prefix cache, as the old weights read it."""
    for _ in range(2):
        world.compare()
        world.step()
        assert world.compare() == {world.version}
        assert root(world.vllm.served().leaves) == state_id(world.tensors)


def test_a_version_without_a_change_gets_its_number(world: World) -> None:
    world.vllm.swap({}, world.version + 1)
    world.follow(world.tensors)
    assert world.compare() == {world.version}


def test_a_damaged_patch_is_refused_and_the_old_version_serves(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    write: Callable[..., None] = Parcel.__init__

    def spoil(self: Parcel, path: Path, *rest: Any) -> None:
        write(self, path, *rest)
        with path.open("r+b") as file:
            file.seek(-200, 2)
            byte = file.read(1)
            file.seek(-200, 2)
            file.write(bytes([byte[0] ^ 1]))

    after = world.part(stepped(world.tensors, 99))
    with monkeypatch.context() as patch:
        patch.setattr(Parcel, "__init__", spoil)
        with pytest.raises(RefusedWeights, match="is damaged"):
            world.vllm.swap(after, world.version + 1)
    assert world.compare() == {world.version}
    world.step()
    assert world.compare() == {world.version}


@pytest.mark.parametrize("at", ["/pause", "/update_weights", "/finish_weight_update", "/resume"])
def test_after_a_failure_in_a_swap_the_old_version_is_back(
    world: World, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    client = world.vllm._client
    original, failed = client.post, []

    async def post(path: str, *arguments: Any, **query: Any) -> Any:
        if path == at and not failed:
            failed.append(path)
            if at != "/update_weights":  # it is done, and then nobody hears of it
                await original(path, *arguments, **query)
            raise VllmFailed("the line is dead")
        return await original(path, *arguments, **query)

    monkeypatch.setattr(client, "post", post)
    running = started(world, Priority.ROLLOUT, 120)
    with pytest.raises(PutBack, match="the line is dead"):
        world.vllm.swap(world.part(stepped(world.tensors, 98)), world.version + 1)
    asleep = world.name()
    world.asked.ask(asleep, PROMPT, 2)
    world.vllm.swap({}, world.version)  # until then nothing is sampled by unproven weights
    world.asked.wait()
    assert world.asked.versions(asleep) == [world.version] * 2
    assert len(world.asked.ids(running)) == 120 or world.asked.last(running).error
    assert world.compare() == {world.version}
    assert root(world.vllm.served().leaves) == state_id(world.tensors)


def test_tokens_of_a_version_without_proof_leave(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = world.tensors
    publisher = Publisher(bucket := Bucket.open(f"file://{tmp_path}"), "gate")
    versions = [publisher.publish(0, None, {}, base, "base")]
    ids = PROMPT[:9]
    nobodys = Probe.of(ids, [-1.0] * 8)
    after = stepped(base, 7)
    versions.append(publisher.publish(1, versions[0], base, after, "rl", step=1, probes=(nobodys,)))
    gate, status = Gate(world.vllm), PoolStatus("paris", "http://x", versions[0].state_id)
    config = PoolConfig(retry_s=1e-9, retry_max_s=1e-9)
    gate.start = lambda: None  # type: ignore[method-assign]
    held: list[int] = []

    def scored(sequences: Any) -> Any:
        """The version is in the engine and not proven: one more begins, and waits at the gate."""
        names.append(asked.ask(world.name(), PROMPT[:3], LONG))
        deadline = time.monotonic() + 60
        while not (now := gate.load()).held and time.monotonic() < deadline:
            time.sleep(0.001)
        held.append(now.held)
        return world.vllm.score(sequences)

    gate.score = scored  # type: ignore[method-assign]
    asked = Listener(gate)  # type: ignore[arg-type]
    receiver = Receiver(gate, bucket, status, config, lambda: State.of(0, base))
    world.vllm.swap({}, 0)
    publisher.announce(versions[0])
    receiver.boot(threading.Event())
    receiver.follow()
    publisher.announce(versions[1])
    names: list[str] = []
    exchange = world.vllm._holdings._exchange

    async def meanwhile(parcel: Any, version: int) -> float:
        if version == 1:  # the version is staged: from here on it is a matter of milliseconds
            for kind in (Priority.USER, Priority.ROLLOUT, Priority.USER, Priority.ROLLOUT):
                names.append(asked.ask(world.name(), PROMPT[:3], LONG, priority=kind))
                while not asked.ids(names[-1]):  # a fast one may be done when the next begins
                    await asyncio.sleep(0)
        return await exchange(parcel, version)

    monkeypatch.setattr(world.vllm._holdings, "_exchange", meanwhile)
    receiver.follow()
    report = status.report(gate.load())
    assert (report.state, report.version) == (PoolState.REFUSING, 0)
    asked.wait()
    world.version = 0
    assert held[-1] > 0, "the version was sampled with before its proof failed"
    assert len(names) == 5 and all(set(asked.versions(name)) <= {0} for name in names)
    ended = [name for name in names if len(asked.ids(name)) < LONG]
    assert names[-1] in ended and not asked.ids(names[-1]), "none of its tokens was proven"
    for name in ended:
        assert "version 1 was taken back" in (asked.last(name).error or "")
    whole, rest = world.name(), world.name()
    asked.ask(whole, PROMPT[:3], 60)
    got = asked.ids(ended[0])[:20]
    asked.ask(rest, (*PROMPT[:3], *got), 60 - len(got))
    asked.wait()
    assert got + asked.ids(rest) == asked.ids(whole), "it goes on as if nothing had been"
    assert world.compare() == {0}


def test_another_shape_or_name_is_refused(world: World) -> None:
    norm = world.tensors["model.norm.weight"]
    for changed in ({"model.norm.weight": norm[:-1]}, {"other": norm}):
        with pytest.raises(RefusedWeights):
            world.vllm.swap(changed, world.version + 1)
    assert world.compare() == {world.version}


def test_a_cancelled_request_ends(world: World) -> None:
    for _ in range(10):  # a fast vLLM may be done before a busy machine has asked for the end
        name = started(world, Priority.ROLLOUT, LONG)
        world.vllm.cancel(name)
        world.asked.wait()
        if world.asked.last(name).finish_reason is FinishReason.CANCELLED:
            break
    assert world.asked.last(name).finish_reason is FinishReason.CANCELLED
    assert 0 < len(world.asked.ids(name)) < LONG
    world.compare()


def test_no_route_is_served_without_the_key(world: World) -> None:
    server = world.vllm._server
    assert server.folder.stat().st_mode & 0o777 == 0o700
    transport = httpx.HTTPTransport(uds=str(server.socket))
    with httpx.Client(transport=transport, base_url="http://vllm") as stranger:
        for path in ("/pause", "/collective_rpc", "/update_weights", "/inference/v1/generate"):
            assert stranger.post(path, json={}).status_code == 401
        assert stranger.get("/is_paused").status_code == 401
        key = {"Authorization": f"Bearer {server.key}"}
        assert stranger.get("/is_paused", headers=key).json() == {"is_paused": False}
