"""A retry is the same call; an equal body without a mark is not."""

from __future__ import annotations

import threading

import httpx
import openai
import pytest

BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def post(world, key: str, headers=(), body=BODY, timeout: float = 20.0) -> httpx.Response:
    return httpx.post(
        f"{world.url}/v1/chat/completions",
        headers={"Authorization": f"Bearer {key}", **dict(headers)},
        json=body,
        timeout=timeout,
    )


RETRY = {"x-stainless-retry-count": "1"}


def test_sdk_retry_does_not_sample_twice(bare_world):
    """The real SDK gives up waiting and asks again while the first answer is on its way."""
    world = bare_world
    world.start(orphan_grace_s=20.0)
    lease = world.lease()
    world.paris.script.append(world.reply("first", stall_after=1))
    joined = threading.Thread(
        target=lambda: (
            world.wait_until(lambda: world.gateway.metrics.joined),
            world.paris.release(),
        )
    )
    joined.start()
    client = world.client(lease.model_key, max_retries=3, timeout=0.5)
    answer = client.chat.completions.create(**BODY)
    joined.join()
    assert answer.choices[0].message.content == "first"
    assert len(world.paris.requests) == 1
    (turn,) = world.wait_until(lambda: [t for t in world.turns(lease) if t.delivered])
    assert turn.state.value == "done"


def test_retry_of_a_finished_call_gets_the_same_answer(world):
    lease = world.lease()
    world.paris.script.append(world.reply("one"))
    first = post(world, lease.model_key).json()
    again = post(world, lease.model_key, RETRY).json()
    assert again == first
    assert len(world.paris.requests) == 1


def test_retry_is_streamed_from_the_first_piece_on(world):
    lease = world.lease()
    world.paris.script.append(world.reply("one"))
    post(world, lease.model_key, body={**BODY, "stream": True})
    again = post(world, lease.model_key, RETRY, body={**BODY, "stream": True}).text
    assert '"content":"one"' in again
    assert again.endswith("data: [DONE]\n\n")
    assert len(world.paris.requests) == 1


def test_equal_bodies_without_a_mark_sample_again(world):
    lease = world.lease()
    world.paris.script.extend([world.reply("one"), world.reply("two")])
    texts = [post(world, lease.model_key).json()["choices"][0]["message"]["content"] for _ in "12"]
    assert texts == ["one", "two"]
    one, two = world.paris.requests
    assert one.seed != two.seed
    assert world.gateway.metrics.turns == {"root": 1, "repeated": 1}


def test_retry_with_another_body_samples_again(world):
    lease = world.lease()
    post(world, lease.model_key)
    other = {**BODY, "messages": [{"role": "user", "content": "other"}]}
    post(world, lease.model_key, RETRY, body=other)
    assert len(world.paris.requests) == 2


def test_retry_after_a_refusal_samples(bare_world):
    world = bare_world
    world.start(pool_attempts=1)
    lease = world.lease()
    world.paris.script.append(world.reply(error="busy"))
    client = world.client(lease.model_key, max_retries=2)
    assert client.chat.completions.create(**BODY).choices[0].message.content == "hello"
    assert [t.state.value for t in world.turns(lease)] == ["lost", "done"]
    world.ask(lease.model_key, "hi", "hello", "more")
    assert world.turns(lease)[2].state.value == "done"


def test_retry_of_one_of_several_equal_calls_gets_the_abandoned_one(bare_world):
    world = bare_world
    world.start(orphan_grace_s=20.0)
    lease = world.lease()
    world.paris.script.extend([world.reply("lost one", stall_after=1), world.reply("kept one")])
    with pytest.raises(httpx.ReadTimeout):
        post(world, lease.model_key, timeout=0.3)
    world.paris.stalled.wait(10)
    assert "kept one" in post(world, lease.model_key).text
    world.paris.release()
    assert "lost one" in post(world, lease.model_key, RETRY).text
    assert len(world.paris.requests) == 2


def test_idempotency_key_means_one_call(world):
    lease = world.lease()
    world.paris.script.extend([world.reply("one"), world.reply("two")])
    key = {"Idempotency-Key": "k1"}
    texts = [post(world, lease.model_key, key).text for _ in "12"]
    assert texts[0] == texts[1]
    other = {**BODY, "messages": [{"role": "user", "content": "other"}]}
    refused = post(world, lease.model_key, key, body=other)
    assert refused.status_code == 422
    assert refused.json()["error"]["code"] == "idempotency_key_reused"
    assert "two" in post(world, lease.model_key, {"Idempotency-Key": "k2"}).text


def test_key_of_one_rollout_says_nothing_about_another(world):
    world.paris.script.extend([world.reply("one"), world.reply("two")])
    key = {"Idempotency-Key": "k1"}
    assert "one" in post(world, world.lease().model_key, key).text
    assert "two" in post(world, world.lease().model_key, key).text


def test_retry_after_a_restart_of_the_gateway_gets_the_recorded_answer(world):
    lease = world.lease()
    world.paris.script.append(world.reply("one"))
    post(world, lease.model_key)
    world.stop()
    world.start()
    assert "one" in post(world, lease.model_key, RETRY).text
    assert len(world.paris.requests) == 1


def test_two_retries_at_once_make_one_call(world):
    lease = world.lease()
    world.paris.script.append(world.reply("one", stall_after=1))
    answers: list[str] = []
    callers = [
        threading.Thread(target=lambda: answers.append(post(world, lease.model_key, RETRY).text))
        for _ in range(4)
    ]
    for caller in callers:
        caller.start()
    world.wait_until(lambda: world.gateway.metrics.joined == 3)
    world.paris.release()
    for caller in callers:
        caller.join(20)
    assert len(set(answers)) == 1
    assert len(world.paris.requests) == 1


def test_async_client_streams_many_rollouts_at_once(world):
    import asyncio

    leases = [world.lease() for _ in range(8)]
    world.paris.script.extend([world.reply(f"answer {i}") for i in range(8)])

    async def one(key: str) -> str:
        async with openai.AsyncOpenAI(
            api_key=key, base_url=f"{world.url}/v1", max_retries=0
        ) as client:
            stream = await client.chat.completions.create(**BODY, stream=True)
            return "".join([e.choices[0].delta.content or "" async for e in stream])

    async def everyone() -> list[str]:
        return await asyncio.gather(*(one(lease.model_key) for lease in leases))

    assert sorted(asyncio.run(everyone())) == [f"answer {i}" for i in range(8)]
    assert {world.turns(lease)[0].state.value for lease in leases} == {"done"}


def test_retry_of_a_refused_call_is_not_answered_with_its_twins_sample(bare_world):
    world = bare_world
    world.start(max_parallel=1)
    lease = world.lease()
    world.paris.script.extend([world.reply("one", stall_after=1), world.reply("two")])
    twin: list[str] = []
    caller = threading.Thread(target=lambda: twin.append(post(world, lease.model_key).text))
    caller.start()
    world.paris.stalled.wait(10)
    assert post(world, lease.model_key).status_code == 429
    world.paris.release()
    caller.join(20)
    assert "one" in twin[0]
    assert "two" in post(world, lease.model_key, RETRY).text
    assert len(world.paris.requests) == 2
