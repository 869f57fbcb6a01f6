"""Answers of vLLM that outlive a swap, as a gateway sees them: it bears no silence of its pools.

agents ◄─► gateway ◄─► gate ◄─► vLLM      tokens of the new version wait for its proof,
                                            signs of life do not
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from lent import Lent, letters
from smallmodel import stepped
from stand import standing
from world import World

from tradewind.pool.gate import Gate

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    # beside other tests a swap takes longer than these answers: they end before it
    pytest.mark.skipif(os.environ.get("TRADEWIND_FULL") != "1", reason="TRADEWIND_FULL=1 plays it"),
]

LONG = 1500
AT_ONCE = 4
SILENCE_S = 6.0
"""A machine that runs other tests beside this one may be silent for two seconds by itself."""
BOUNDS = {"max_tokens": LONG, "pool_silence_s": SILENCE_S}


def chat(client: httpx.Client, key: str) -> httpx.Response:
    """One answer, not streamed."""
    return client.post(
        "/v1/chat/completions",
        headers={"Authorization": f"Bearer {key}"},
        json={"model": "policy", "messages": [{"role": "user", "content": "Tell me all."}]},
    )


def await_held(gate: Gate) -> None:
    """Until tokens of the new version wait."""
    deadline = time.monotonic() + 60
    while not gate.load().held:
        assert time.monotonic() < deadline, "no token of the new version came"
        time.sleep(0.01)


def test_answers_whose_tokens_wait_for_a_proof_are_broken_off_by_the_gateway(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four at once; the proof takes longer than the gateway bears silence."""
    lent = Lent(world.vllm)
    gate = Gate(lent, sign_s=0.1)
    world.vllm.swap({}, 0)
    world.version = 0
    exchange, began = world.vllm._holdings._exchange, threading.Event()
    after = stepped(world.tensors, 17)

    async def meanwhile(parcel: Any, version: int) -> float:
        began.set()  # the version is staged: from here on it is a matter of milliseconds
        async with asyncio.timeout(60):
            while sum(map(bool, stand.engine.gave.values())) < AT_ONCE:
                await asyncio.sleep(0.001)
        return await exchange(parcel, version)

    monkeypatch.setattr(world.vllm._holdings, "_exchange", meanwhile)
    with (
        standing(tmp_path, letters(tmp_path / "letters"), gate, **BOUNDS) as stand,
        ThreadPoolExecutor(AT_ONCE + 1) as threads,
        httpx.Client(base_url=stand.url, timeout=100, trust_env=False) as client,
    ):
        # all is ready before the swap: else the first is at its end when the last one begins
        leases = [stand.lease() for _ in range(AT_ONCE)]
        swapped = threads.submit(gate.swap, after, 1)
        assert began.wait(60)
        answers = [threads.submit(chat, client, lease.model_key) for lease in leases]
        swapped.result(60)
        await_held(gate)
        held_until = time.monotonic() + 1.5 * SILENCE_S
        while time.monotonic() < held_until:
            time.sleep(0.01)
        assert not any(answer.done() for answer in answers)
        gate.opened()
        world.follow(world.tensors | after)
        assert [answer.result(60).status_code for answer in answers] == [200] * AT_ONCE
        for (turn,) in map(stand.turns, leases):
            old, new = turn.completion.spans
            assert (old.version, new.version, old.count + new.count) == (0, 1, LONG)
            assert list(turn.completion.output_ids) == stand.engine.gave[turn.turn_id]
        assert len(stand.engine.asked) == AT_ONCE and not lent.cancelled, "nobody began anew"
    assert world.compare() == {1}
