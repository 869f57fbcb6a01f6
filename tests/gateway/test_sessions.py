"""The key is the session: who may call, until when, how much."""

from __future__ import annotations

import time

import httpx
import openai
import pytest

from tradewind.types import Outcome


def test_unknown_key_gets_401(world):
    with pytest.raises(openai.AuthenticationError) as caught:
        world.ask("tw-model-wrong", "hi")
    assert caught.value.code == "invalid_api_key"
    with pytest.raises(openai.AuthenticationError):
        world.client("tw-model-wrong").models.list()
    assert httpx.post(f"{world.url}/v1/chat/completions", json={}).status_code == 401


def test_agent_key_cannot_report_a_reward(world):
    """R6: no route of the gateway takes an outcome, and the key is no result key in the ledger."""
    from tradewind.ledger.keys import digest

    lease = world.lease()
    headers = {"Authorization": f"Bearer {lease.model_key}"}
    for path in ("outcome", "heartbeat", "scores"):
        url = f"{world.url}/v1/rollouts/{lease.rollout_id}/{path}"
        assert httpx.post(url, headers=headers, json={"status": "completed"}).status_code == 404
    assert world.ledger.rollout_of_key(digest(lease.model_key), "result") is None
    assert world.ledger.rollout_of_key(digest(lease.result_key), "result") == lease.rollout_id


def test_result_key_cannot_sample(world):
    with pytest.raises(openai.AuthenticationError):
        world.ask(world.lease().result_key, "hi")


@pytest.mark.parametrize("cache", [0.0, 600.0], ids=["asks the ledger", "believes its cache"])
def test_ended_rollout_gets_409_once_and_the_sdk_does_not_repeat_it(bare_world, cache):
    world = bare_world
    world.start(session_cache_s=cache)
    lease = world.lease()
    world.ask(lease.model_key, "hi")
    world.ledger.finish(lease.rollout_id, Outcome(status="completed"), time.time())
    calls = len(world.paris.requests)
    client = world.client(lease.model_key, max_retries=5)
    with pytest.raises(openai.ConflictError) as caught:
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
    assert caught.value.code == "rollout_ended"
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert len(world.paris.requests) == calls
    assert len(world.turns(lease)) == 1


def test_model_traffic_renews_the_lease(world):
    lease = world.lease()
    soon = time.time() + 600.0
    world.ask(lease.model_key, "hi")
    # The lease of 600 s was taken before this call: only a renewal outlives that moment.
    assert world.ledger.expire(soon) == []


def test_too_many_calls_of_one_rollout_at_once_get_429(bare_world):
    world = bare_world
    world.start(max_parallel=1)
    lease = world.lease()
    world.paris.script.append(world.reply(stall_after=1))
    stream = world.ask(lease.model_key, "hi", stream=True)
    next(stream)
    with pytest.raises(openai.RateLimitError) as caught:
        world.ask(lease.model_key, "hi")
    assert caught.value.code == "too_many_calls"
    world.paris.release()
    list(stream)


def test_body_over_the_limit_gets_413(bare_world):
    world = bare_world
    world.start(max_body_bytes=1000)
    with pytest.raises(openai.APIStatusError) as caught:
        world.ask(world.lease().model_key, "x" * 2000)
    assert caught.value.status_code == 413


def test_context_overflow_has_the_code_that_agents_know(world):
    lease = world.lease()
    with pytest.raises(openai.BadRequestError) as caught:
        world.ask(lease.model_key, "x" * 500)
    assert caught.value.code == "context_length_exceeded"
    assert "maximum context length is 400 tokens" in caught.value.message
    assert world.turns(lease) == []


def test_answer_is_clamped_to_what_the_context_leaves(world):
    world.ask(world.lease().model_key, "x" * 330)
    (request,) = world.paris.requests
    assert request.max_tokens == 400 - len(request.prompt_ids) < 64


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", "invalid_value"),
        (b"[]", "invalid_value"),
        (b"{}", "invalid_value"),
        (b'{"messages": []}', "invalid_value"),
        (b'{"messages": ["x"]}', "invalid_value"),
        (b'{"messages": [{"content": "x"}]}', "invalid_value"),
    ],
)
def test_malformed_body_gets_400_in_openais_shape(world, body, code):
    headers = {"Authorization": f"Bearer {world.lease().model_key}"}
    answer = httpx.post(f"{world.url}/v1/chat/completions", headers=headers, content=body)
    assert answer.status_code == 400
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    assert answer.json()["error"]["code"] == code


def test_image_gets_a_sentence_in_openais_shape(world):
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    with pytest.raises(openai.BadRequestError, match="images, audio and files") as caught:
        world.client(world.lease().model_key).chat.completions.create(
            model="m", messages=[{"role": "user", "content": [image]}]
        )
    assert caught.value.param == "messages"


def test_unknown_route_answers_in_openais_shape(world):
    answer = httpx.get(f"{world.url}/v1/assistants")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "unknown_url"


def test_models_health_and_metrics(world):
    lease = world.lease()
    assert [m.id for m in world.client(lease.model_key).models.list()] == ["policy"]
    world.ask(lease.model_key, "hi")
    assert httpx.get(f"{world.url}/healthz").json() == {"pools": 1}
    metrics = httpx.get(f"{world.url}/v1/metrics").json()
    assert metrics["tokens"]["sampled"] == 6
    assert metrics["turns"] == {"root": 1}
    assert metrics["in_flight"] == 0
    assert [(p["pool"], p["in_flight"]) for p in metrics["pools"]] == [("paris", 0)]


def test_gateway_beats_and_names_what_it_waits_for(bare_world):
    world = bare_world
    world.start(pool_alive_s=5.0)
    world.ledger.record_pool(world.ledger.pools()[0], now=time.time() - 60)
    beat = world.wait_until(lambda: next((b for b in world.ledger.beats() if b.waiting_for), None))
    assert (beat.process, beat.waiting_for, beat.owner) == (
        "gateway",
        "no pool has reported lately",
        "pool",
    )


def test_gateway_says_for_which_version_an_evaluation_waits(bare_world):
    import threading

    world = bare_world
    world.start(eval_wait_s=20.0)
    lease = world.eval_lease(0)
    world.paris.version = 4
    world.report(world.paris)
    caller = threading.Thread(target=lambda: world.ask(lease.model_key, "hi"))
    caller.start()
    beat = world.wait_until(lambda: next((b for b in world.ledger.beats() if b.waiting_for), None))
    assert beat.waiting_for == "version 0 is asked for and the pools serve [4]"
    world.paris.version = 0
    world.report(world.paris)
    caller.join(20)
    assert world.turns(lease)[0].state.value == "done"
