"""A call that must call: its beginning is forced as prompt, the rest is sampled as ever."""

from __future__ import annotations

import json

import anthropic
import openai
import pytest

from tradewind.render.renderer import Renderer

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
ADD = {"name": "add", "description": "Adds.", "parameters": SCHEMA}
SUB = {**ADD, "name": "sub"}
USER = {"role": "user", "content": "hi"}
BEGUN = {"any": '<tool_call>{"name":', "sub": '<tool_call>{"name": "sub", "arguments":'}
REST = {"any": ' "sub", "arguments": {"a": 1}}</tool_call>', "sub": ' {"a": 1}}</tool_call>'}


def _in(said, choice):
    """`any`, `sub`, or a choice as it would be sent."""
    return said.get(choice, choice) if isinstance(choice, str) else choice


def chat(world, key, choice, **options):
    said = {"any": "required", "sub": {"type": "function", "function": {"name": "sub"}}}
    tools = [{"type": "function", "function": tool} for tool in (ADD, SUB)]
    body = {"model": "m", "messages": [USER], "tools": tools, **options}
    create = world.client(key).chat.completions.create
    answer = create(**body, tool_choice=_in(said, choice)).choices[0]
    calls = [made.function for made in answer.message.tool_calls or []]
    return answer.message.content, [(c.name, json.loads(c.arguments)) for c in calls]


def responses(world, key, choice, **options):
    said = {"any": "required", "sub": {"type": "function", "name": "sub"}}
    tools = [{"type": "function", **tool} for tool in (ADD, SUB)]
    body = {"model": "m", "input": [USER], "tools": tools, **options}
    answer = world.client(key).responses.create(**body, tool_choice=_in(said, choice))
    calls = [item for item in answer.output if item.type == "function_call"]
    return answer.output_text or None, [(c.name, json.loads(c.arguments)) for c in calls]


def messages(world, key, choice, **options):
    said = {"any": {"type": "any"}, "sub": {"type": "tool", "name": "sub"}}
    tools = [{"name": tool["name"], "input_schema": SCHEMA} for tool in (ADD, SUB)]
    body = {"model": "m", "max_tokens": 64, "messages": [USER], "tools": tools, **options}
    body = {name: value for name, value in body.items() if value is not None}
    answer = world.anthropic(key).messages.create(**body, tool_choice=_in(said, choice))
    text = "".join(block.text for block in answer.content if block.type == "text")
    return text or None, [(b.name, b.input) for b in answer.content if b.type == "tool_use"]


DIALECTS = {"chat": chat, "responses": responses, "messages": messages}


@pytest.mark.parametrize("choice", BEGUN)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_forced_call_is_begun_as_prompt_and_only_the_rest_is_sampled(tool_world, dialect, choice):
    world, lease = tool_world, tool_world.lease()
    world.paris.script.append(world.reply(REST[choice]))
    saw = DIALECTS[dialect](world, lease.model_key, choice)
    assert saw == (None, [("sub", {"a": 1})])
    (turn,), renderer = world.turns(lease), world.paris.renderer
    opening = renderer.encode(BEGUN[choice])
    assert turn.prompt_ids[-len(opening) :] == opening
    assert renderer.decode(turn.completion.output_ids) == REST[choice]
    assert turn.asked["tool_choice"], "what the agent asked for is on record"
    assert not world.gateway.metrics.overridden


def test_turn_after_a_forced_call_extends_the_forced_and_the_sampled_ids(tool_world):
    world, lease = tool_world, tool_world.lease()
    world.paris.script.append(world.reply(REST["sub"]))
    chat(world, lease.model_key, "sub")
    (one,) = world.turns(lease)
    said = {"role": "assistant", "content": None, "tool_calls": list(one.tool_calls)}
    result = {"role": "tool", "tool_call_id": one.tool_calls[0]["id"], "content": "3"}
    chat(world, lease.model_key, "auto", messages=[USER, said, result])
    two = world.turns(lease)[1]
    spoken = one.prompt_ids + one.completion.output_ids
    assert (two.parent, two.prompt_ids[: len(spoken)]) == (one.turn_id, spoken)


def test_forced_call_that_is_cut_off_stays_text_with_its_beginning(tool_world):
    world, lease = tool_world, tool_world.lease()
    world.paris.script.append(world.reply(REST["sub"]))
    assert chat(world, lease.model_key, "sub", max_tokens=5) == (BEGUN["sub"] + ' {"a"', [])


def test_stop_string_is_not_looked_for_in_what_was_forced(tool_world):
    world, lease = tool_world, tool_world.lease()
    world.paris.script.append(world.reply(REST["any"]))
    _, calls = chat(world, lease.model_key, "any", stop=["<tool_call>", "name"])
    assert calls == [("sub", {"a": 1})]


def test_users_may_force_a_call_too(tool_world):
    world = tool_world
    world.paris.script.append(world.reply(REST["sub"]))
    assert chat(world, "user-key", "sub") == (None, [("sub", {"a": 1})])


def test_model_without_a_form_of_its_own_is_begun_in_ours(model):
    form = Renderer.open(model).form
    assert form.opening(None) == '<tool_call>\n{"name":'
    assert form.opening("add") == '<tool_call>\n{"name": "add", "arguments":'


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("choice", "options", "said"),
    [
        ("any", {"tools": None}, "no tools are offered"),
        ({"type": "tool", "name": "mul"}, {}, "tool_choice"),
        ({"type": "function", "name": "mul", "function": {"name": "mul"}}, {}, "tool_choice"),
        ({"type": "allowed_tools"}, {}, "tool_choice"),
        ({"type": "web_search"}, {}, "tool_choice"),
        ([], {}, "tool_choice"),
    ],
    ids=str,
)
def test_choice_that_cannot_be_kept_is_refused_in_the_dialects_own_shape(
    tool_world, dialect, choice, options, said
):
    _assert_refused(tool_world, dialect, choice, said, options)
    assert tool_world.paris.requests == []


FORMATS = {
    "chat": {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
    "responses": {"text": {"format": {"type": "json_schema", "name": "x", "schema": {}}}},
    "messages": {"output_config": {"format": {"type": "json_schema", "schema": {}}}},
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_schema_that_nothing_would_enforce_is_refused_and_not_ignored(tool_world, dialect):
    body = {"extra_body": FORMATS[dialect]}
    auto = {"type": "auto"} if dialect == "messages" else "auto"
    _assert_refused(tool_world, dialect, auto, "format", body)


def test_what_lies_beside_a_format_is_still_taken(tool_world):
    world, lease = tool_world, tool_world.lease()
    text = {"format": {"type": "text"}, "verbosity": "low"}
    responses(world, lease.model_key, "auto", extra_body={"text": text})
    effort = {"output_config": {"effort": "low"}}
    messages(world, lease.model_key, {"type": "auto"}, extra_body=effort)
    assert len(world.turns(lease)) == 2


def _assert_refused(world, dialect, choice, said, options) -> None:
    kinds = (openai.BadRequestError, anthropic.BadRequestError)
    with pytest.raises(kinds, match=said) as caught:
        DIALECTS[dialect](world, world.lease().model_key, choice, **options)
    error = caught.value.response.json()
    shape = {"type", "message"} if dialect == "messages" else {"message", "type", "param", "code"}
    assert set(error["error"]) == shape
    assert error["error"]["type"] == "invalid_request_error"
