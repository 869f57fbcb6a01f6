"""Anthropic Messages and OpenAI Responses, through their own SDKs: same turns, other words."""

from __future__ import annotations

import json
import time

import anthropic
import httpx
import openai
import pytest

from tradewind.types import Outcome

CALL = '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
CLAUDE_TOOL = {"name": "add", "description": "Adds.", "input_schema": SCHEMA}
TOOL = {"type": "function", "name": "add", "description": "Adds.", "parameters": SCHEMA}
USER = {"role": "user", "content": "hi"}
LIMIT = {"model": "m", "max_tokens": 200}


def claude(world, lease, messages=(USER,), **options):
    return world.anthropic(lease.model_key).messages.create(
        **{**LIMIT, "messages": list(messages), **options}
    )


def respond(world, lease, items="hi", **options):
    return world.client(lease.model_key).responses.create(model="m", input=items, **options)


def test_message_and_its_second_turn_extend_the_same_ids(tool_world):
    world, lease = tool_world, tool_world.lease()
    world.paris.script.extend([world.reply(f"I add. {CALL}"), world.reply("it is 3")])
    options = {"tools": [CLAUDE_TOOL], "system": [{"type": "text", "text": "be brief"}]}
    first = claude(world, lease, **options)
    text, use = first.content
    assert (first.stop_reason, text.text, use.name, use.input) == (
        "tool_use",
        "I add.",
        "add",
        {"a": 1},
    )
    done = {
        "type": "tool_result",
        "tool_use_id": use.id,
        "content": [{"type": "text", "text": "3"}],
    }
    chat = [USER, {"role": "assistant", "content": first.content}]
    second = claude(world, lease, [*chat, {"role": "user", "content": [done]}], **options)
    assert (second.content[0].text, second.stop_reason) == ("it is 3", "end_turn")
    one, two = world.turns(lease)
    assert (two.parent, two.dialect) == (one.turn_id, "messages")
    spoken = one.prompt_ids + one.completion.output_ids
    assert two.prompt_ids[: len(spoken)] == spoken
    assert first.usage.input_tokens == len(one.prompt_ids)
    assert second.usage.output_tokens == len(two.completion.output_ids)


def test_streamed_message_is_the_unstreamed_one(tool_world):
    world, lease = tool_world, tool_world.lease()
    world.paris.script.append(world.reply(f"I add. {CALL}"))
    client = world.anthropic(lease.model_key)
    with client.messages.stream(**LIMIT, messages=[USER], tools=[CLAUDE_TOOL]) as stream:
        kinds = [event.type for event in stream]
        message = stream.get_final_message()
    assert [block.type for block in message.content] == ["text", "tool_use"]
    assert (message.content[0].text, message.content[1].input) == ("I add.", {"a": 1})
    assert message.stop_reason == "tool_use"
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 2
    assert message.usage.input_tokens == len(world.turns(lease)[0].prompt_ids)


def test_stop_sequence_and_length_have_their_reasons(tool_world):
    world = tool_world
    world.paris.script.append(world.reply("one; two"))
    message = claude(world, world.lease(), stop_sequences=[";"])
    assert (message.content[0].text, message.stop_reason, message.stop_sequence) == (
        "one",
        "stop_sequence",
        ";",
    )
    assert claude(world, world.lease(), max_tokens=2).stop_reason == "max_tokens"


def test_hidden_reasoning_blocks_are_not_rendered(tool_world):
    world, lease = tool_world, tool_world.lease()
    thought = {"type": "thinking", "thinking": "hm", "signature": "x"}
    content = [thought, {"type": "text", "text": "yes"}]
    claude(world, lease, [USER, {"role": "assistant", "content": content}, USER])
    assert "hm" not in world.paris.renderer.decode(world.turns(lease)[0].prompt_ids)


def test_counting_tokens_is_no_turn(tool_world):
    world, lease = tool_world, tool_world.lease()
    options = {"messages": [USER], "tools": [CLAUDE_TOOL]}
    count = world.anthropic(lease.model_key).messages.count_tokens(model="m", **options)
    claude(world, lease, tools=[CLAUDE_TOOL])
    (turn,) = world.turns(lease)
    assert count.input_tokens == len(turn.prompt_ids)
    counted = world.client(lease.model_key).responses.input_tokens.count(model="m", input="hi")
    respond(world, lease)
    assert counted.input_tokens == len(world.turns(lease)[1].prompt_ids)


def test_models_have_the_callers_shape(world):
    lease = world.lease()
    (model,) = world.anthropic(lease.model_key).models.list()
    assert (model.id, model.type) == ("policy", "model")
    assert world.client(lease.model_key).models.retrieve("policy").object == "model"


def test_response_and_its_call_extend_the_same_ids(tool_world):
    world, lease = tool_world, tool_world.lease()
    world.paris.script.extend([world.reply(f"I add. {CALL}"), world.reply("it is 3")])
    options = {"tools": [TOOL], "instructions": "be brief"}
    first = respond(world, lease, **options)
    message, call = first.output
    assert (first.status, first.output_text) == ("completed", "I add.")
    assert (call.name, json.loads(call.arguments)) == ("add", {"a": 1})
    done = {"type": "function_call_output", "call_id": call.call_id, "output": "3"}
    second = respond(world, lease, [USER, message, call, done], **options)
    assert second.output_text == "it is 3"
    one, two = world.turns(lease)
    assert (two.parent, two.dialect) == (one.turn_id, "responses")
    assert second.usage.total_tokens == len(two.prompt_ids) + len(two.completion.output_ids)


def test_streamed_response_is_the_unstreamed_one(tool_world):
    world, lease = tool_world, tool_world.lease()
    world.paris.script.append(world.reply(f"I add. {CALL}"))
    with world.client(lease.model_key).responses.stream(
        model="m", input="hi", tools=[TOOL]
    ) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert (final.output_text, final.output[1].name) == ("I add.", "add")
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == "I add."
    assert events[-1].type == "response.completed"
    added = [event for event in events if event.type == "response.output_item.added"]
    assert [event.output_index for event in added] == [0, 1]


def test_response_cut_by_length_is_incomplete(tool_world):
    world = tool_world
    response = respond(world, world.lease(), max_output_tokens=2)
    assert (response.status, response.incomplete_details.reason) == (
        "incomplete",
        "max_output_tokens",
    )


def test_previous_response_continues_the_same_ids_with_its_own_instructions(tool_world):
    world, lease = tool_world, tool_world.lease()
    first = respond(world, lease)
    respond(world, lease, "more", previous_response_id=first.id)
    one, two = world.turns(lease)
    assert two.parent == one.turn_id
    third = respond(world, lease, "x", instructions="a")
    respond(world, lease, "y", instructions="b", previous_response_id=third.id)
    roles = [(m["role"], m["content"]) for m in world.turns(lease)[3].messages]
    assert roles == [("system", "b"), ("user", "x"), ("assistant", "hello"), ("user", "y")]


def test_previous_response_of_another_session_is_refused(tool_world):
    world = tool_world
    first = respond(world, world.lease())
    with pytest.raises(openai.BadRequestError, match="no answered response") as caught:
        respond(world, world.lease(), previous_response_id=first.id)
    assert caught.value.code == "previous_response_not_found"
    with pytest.raises(openai.BadRequestError, match="whole conversation"):
        world.client().responses.create(model="m", input="x", previous_response_id=first.id)


@pytest.mark.parametrize("item", [{"type": "item_reference", "id": "x"}, {"type": "image_gen"}])
def test_item_that_cannot_be_read_gets_a_sentence(tool_world, item):
    with pytest.raises(openai.BadRequestError, match=f"'{item['type']}' are not supported"):
        respond(tool_world, tool_world.lease(), [USER, item])


PATHS = ["chat/completions", "messages", "responses"]
BODIES = {
    "chat/completions": {"model": "m", "messages": [USER]},
    "messages": {**LIMIT, "messages": [USER]},
    "responses": {"model": "m", "input": "hi"},
}


def post(world, key, path, body=None, **headers) -> httpx.Response:
    return httpx.post(
        f"{world.url}/v1/{path}",
        headers={"Authorization": f"Bearer {key}", **headers},
        json={**BODIES[path], **(body or {})},
        timeout=20,
    )


def shape(answer: httpx.Response, path: str) -> str | None:
    """The machine-readable word of an error, if it has the dialect's shape."""
    body = answer.json()
    if path == "messages":
        assert set(body) == {"type", "error"} and body["type"] == "error"
        assert set(body["error"]) == {"type", "message"}
        return body["error"]["type"]
    assert set(body["error"]) == {"message", "type", "param", "code"}
    return body["error"]["code"]


WORDS = {
    401: ("invalid_api_key", "authentication_error"),
    400: ("context_length_exceeded", "invalid_request_error"),
    409: ("rollout_ended", "conflict_error"),
    429: ("no_pool", "rate_limit_error"),
}


@pytest.mark.parametrize("path", PATHS)
def test_errors_have_the_dialects_shape(bare_world, path):
    world = bare_world
    world.start(admission_wait_s=0.0, pool_alive_s=5.0)
    lease = world.lease()
    answers = {401: post(world, "wrong", path)}
    long = [{"role": "user", "content": "x" * 500}]
    field = "input" if path == "responses" else "messages"
    answers[400] = post(world, lease.model_key, path, {field: long})
    world.ledger.record_pool(world.ledger.pools()[0], now=time.time() - 60)
    world.wait_until(lambda: httpx.get(f"{world.url}/healthz").json() == {"pools": 0})
    answers[429] = post(world, lease.model_key, path)
    world.ledger.finish(lease.rollout_id, Outcome(status="completed"), time.time())
    world.gateway.sessions.forget(lease.rollout_id)
    answers[409] = post(world, lease.model_key, path)
    for status, answer in answers.items():
        assert answer.status_code == status
        assert shape(answer, path) == WORDS[status][path == "messages"]
    assert float(answers[429].headers["retry-after"]) >= 1
    assert answers[409].headers["x-should-retry"] == "false"
    if path == "messages":
        assert "prompt is too long: " in answers[400].json()["error"]["message"]


@pytest.mark.parametrize("path", PATHS)
def test_unknown_parameter_is_named_in_each_dialect(world, path):
    answer = post(world, world.lease().model_key, path, {"temprature": 1})
    assert answer.status_code == 400
    shape(answer, path)
    assert "temprature" in answer.json()["error"]["message"]


@pytest.mark.parametrize("path", PATHS)
def test_sampling_is_forced_in_each_dialect_and_both_values_are_recorded(world, path):
    lease = world.lease()
    assert post(world, lease.model_key, path, {"temperature": 0.1}).status_code == 200
    (request,), (turn,) = world.paris.requests, world.turns(lease)
    assert request.temperature == turn.temperature == 1.0
    assert turn.asked["temperature"] == 0.1


@pytest.mark.parametrize("path", PATHS)
def test_answer_that_breaks_in_mid_stream_is_an_error_in_each_dialect(bare_world, path):
    world = bare_world
    world.start(pool_attempts=1)
    lease = world.lease()
    world.paris.script.append(world.reply("hello", die_after=3))
    events = post(world, lease.model_key, path, {"stream": True}).text
    broken = {
        "chat/completions": '"code":"answer_lost"',
        "messages": "event: error\n",
        "responses": "event: response.failed\n",
    }
    assert broken[path] in events
    ends = ('"finish_reason":"stop"', "message_stop", "response.completed", "[DONE]")
    assert not any(end in events for end in ends)
    assert [t.state.value for t in world.turns(lease)] == ["lost"]


@pytest.mark.parametrize("path", PATHS)
def test_retry_is_known_in_each_dialect(world, path):
    lease = world.lease()
    world.paris.script.extend([world.reply("one"), world.reply("two")])
    first = post(world, lease.model_key, path)
    again = post(world, lease.model_key, path, **{"x-stainless-retry-count": "1"})
    assert first.json() == again.json()
    assert "two" in post(world, lease.model_key, path).text


def test_key_in_either_header_is_the_session(world):
    lease = world.lease()
    url, body = f"{world.url}/v1/messages", BODIES["messages"]
    for header in ({"x-api-key": lease.model_key}, {"authorization": f"Bearer {lease.model_key}"}):
        assert httpx.post(url, headers=header, json=body).status_code == 200
    assert httpx.post(url, json=body).status_code == 401
    assert httpx.post(url, json=body).json()["error"]["type"] == "authentication_error"


@pytest.mark.parametrize(
    ("path", "sign"),
    [("chat/completions", ": waiting"), ("messages", "event: ping"), ("responses", ": waiting")],
)
def test_waiting_stream_is_kept_open_in_the_dialects_way(bare_world, path, sign):
    world = bare_world
    world.start(keep_alive_s=0.02)
    world.paris.script.append(world.reply("hello", stall_after=2))
    url = f"{world.url}/v1/{path}"
    headers = {"Authorization": f"Bearer {world.lease().model_key}"}
    body = {**BODIES[path], "stream": True}
    with httpx.stream("POST", url, headers=headers, json=body, timeout=20) as answer:
        lines = answer.iter_lines()
        assert any(line == sign for line in lines)
        world.paris.release()
        assert any("lo" in line for line in lines)


def test_claude_sdk_is_told_not_to_repeat_a_409(world):
    lease = world.lease()
    world.ledger.finish(lease.rollout_id, Outcome(status="completed"), time.time())
    with pytest.raises(anthropic.ConflictError):
        world.anthropic(lease.model_key, max_retries=5).messages.create(**LIMIT, messages=[USER])
    assert world.gateway.metrics.refused == {"rollout_ended": 1}
