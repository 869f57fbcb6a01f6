"""Tools, stop strings and several answers, through the openai SDK."""

from __future__ import annotations

import json

import pytest

TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    },
}
CALL = '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
USER = {"role": "user", "content": "hi"}


def ask(world, lease, messages=(USER,), **options):
    client = world.client(lease.model_key)
    options = {"tools": [TOOL], **options}
    return client.chat.completions.create(model="m", messages=list(messages), **options)


def assembled(stream) -> dict:
    """What the chunks of a stream add up to."""
    content, calls, finish = "", {}, None
    for event in stream:
        for choice in event.choices:
            content += choice.delta.content or ""
            for part in choice.delta.tool_calls or []:
                known = calls.setdefault(part.index, {"id": part.id, "name": "", "arguments": ""})
                known["name"] += part.function.name or ""
                known["arguments"] += part.function.arguments or ""
            finish = choice.finish_reason or finish
    return {"content": content, "calls": list(calls.values()), "finish": finish}


def test_call_is_parsed_and_its_result_extends_the_same_ids(tool_world):
    world, lease = tool_world, tool_world.lease()
    world.paris.script.extend([world.reply(f"I add. {CALL}"), world.reply("it is 3")])
    first = ask(world, lease).choices[0]
    (call,) = first.message.tool_calls
    assert (first.finish_reason, first.message.content) == ("tool_calls", "I add.")
    assert (call.function.name, json.loads(call.function.arguments)) == ("add", {"a": 1})
    result = {"role": "tool", "tool_call_id": call.id, "content": "3"}
    answer = ask(world, lease, [USER, first.message, result]).choices[0]
    assert (answer.message.content, answer.finish_reason) == ("it is 3", "stop")
    one, two = world.turns(lease)
    assert (two.parent, two.kind) == (one.turn_id, "extended")
    spoken = one.prompt_ids + one.completion.output_ids
    assert two.prompt_ids[: len(spoken)] == spoken
    text = world.paris.renderer.decode(two.prompt_ids)
    assert text.count('"description": "Adds."') == 1
    assert "3" in text.rpartition("tool")[2]


def test_parallel_calls_have_ids_of_their_own(tool_world):
    world, lease = tool_world, tool_world.lease()
    world.paris.script.append(world.reply(CALL + CALL.replace("1", "2")))
    calls = ask(world, lease).choices[0].message.tool_calls
    assert [json.loads(c.function.arguments)["a"] for c in calls] == [1, 2]
    assert len({c.id for c in calls}) == 2


def test_streamed_call_is_the_unstreamed_one(tool_world):
    world = tool_world
    world.paris.script.extend([world.reply(f"I add. {CALL}")] * 2)
    streamed = assembled(ask(world, world.lease(), stream=True))
    lease = world.lease()
    whole = ask(world, lease).choices[0]
    assert streamed["content"] == whole.message.content == "I add."
    assert streamed["finish"] == whole.finish_reason == "tool_calls"
    (call,) = whole.message.tool_calls
    assert [(c["name"], c["arguments"]) for c in streamed["calls"]] == [
        (call.function.name, call.function.arguments)
    ]


def test_call_cut_off_by_length_stays_text(tool_world):
    world, lease = tool_world, tool_world.lease()
    world.paris.script.append(world.reply(CALL))
    choice = ask(world, lease, max_tokens=30).choices[0]
    assert (choice.message.content, choice.message.tool_calls) == (CALL[:30], None)
    assert choice.finish_reason == "length"
    ask(world, lease, [USER, choice.message, USER])
    assert world.turns(lease)[1].kind == "extended"


def test_without_tools_or_with_tool_choice_none_a_call_stays_text(tool_world):
    world = tool_world
    world.paris.script.extend([world.reply(CALL)] * 2)
    for options in ({"tools": None}, {"tool_choice": "none"}):
        choice = ask(world, world.lease(), **options).choices[0]
        assert (choice.message.content, choice.finish_reason) == (CALL, "stop")


def test_other_tools_than_before_fork(tool_world):
    world, lease = tool_world, tool_world.lease()
    ask(world, lease)
    said = {"role": "assistant", "content": "hello"}
    ask(world, lease, [USER, said, USER], tools=None)
    assert [(t.parent, t.kind) for t in world.turns(lease)] == [(None, "root"), (None, "tools")]


def test_tools_of_the_provider_are_not_offered_and_counted(tool_world):
    world, lease = tool_world, tool_world.lease()
    ask(world, lease, extra_body={"tools": [TOOL, {"type": "web_search"}]})
    assert world.gateway.metrics.overridden == {"tools.web_search": 1}
    assert [t["function"]["name"] for t in world.turns(lease)[0].tools] == ["add"]


@pytest.mark.parametrize("streamed", [True, False])
def test_stop_string_cuts_the_text_and_not_the_ids(tool_world, streamed):
    world, lease = tool_world, tool_world.lease()
    world.paris.script.append(world.reply("SELECT 1; -- and more"))
    options = {"stop": ["--", ";"], "tools": None, "stream": streamed}
    answer = ask(world, lease, **options)
    text = (
        assembled(answer)["content"]
        if streamed
        else (answer.choices[0].message.content, answer.choices[0].finish_reason)[0]
    )
    assert text == "SELECT 1"
    (turn,) = world.wait_until(lambda: [t for t in world.turns(lease) if t.delivered])
    assert turn.completion.output_ids == world.paris.renderer.encode("SELECT 1;")
    assert len(turn.completion.logprobs) == 9
    assert turn.completion.finish_reason == "stop"
    world.wait_until(lambda: world.paris.cancelled)
    said = {"role": "assistant", "content": "SELECT 1"}
    ask(world, lease, [USER, said, USER], tools=None)
    two = world.turns(lease)[1]
    spoken = turn.prompt_ids + turn.completion.output_ids
    assert two.prompt_ids[: len(spoken) + 1] == (*spoken, 258)


def test_beginning_of_a_stop_string_that_does_not_end_is_shown_after_all(tool_world):
    world, lease = tool_world, tool_world.lease()
    world.paris.script.append(world.reply("a -- b -"))
    answer = assembled(ask(world, lease, stop="---", tools=None, stream=True))
    assert (answer["content"], answer["finish"]) == ("a -- b -", "stop")


def test_evaluation_stops_at_a_stop_string_too(tool_world):
    world = tool_world
    lease = world.eval_lease(0)
    world.paris.script.append(world.reply("one. two"))
    assert ask(world, lease, stop=".", tools=None).choices[0].message.content == "one"


@pytest.mark.parametrize("streamed", [True, False])
def test_several_answers_are_sibling_turns_of_one_prompt(tool_world, streamed):
    world, lease = tool_world, tool_world.lease()
    texts = ["one", CALL, "three"]
    world.paris.script.extend([world.reply(text) for text in texts])
    answer = ask(world, lease, n=3, stream=streamed)
    if streamed:
        found: dict[int, str] = {}
        for event in answer:
            for choice in event.choices:
                found[choice.index] = found.get(choice.index, "") + (choice.delta.content or "")
        assert sorted(found.values()) == ["", "one", "three"]
    else:
        assert [c.index for c in answer.choices] == [0, 1, 2]
        contents = sorted(c.message.content or "" for c in answer.choices)
        assert contents == ["", "one", "three"]
        reasons = sorted(c.finish_reason for c in answer.choices)
        assert reasons == ["stop", "stop", "tool_calls"]
    turns = world.wait_until(
        lambda: (t := world.turns(lease)) and all(turn.delivered for turn in t) and t
    )
    assert len({turn.prompt_ids for turn in turns}) == 1
    assert [turn.parent for turn in turns] == [None] * 3
    assert [turn.choice_of for turn in turns] == [None, turns[0].turn_id, turns[0].turn_id]
    assert len({request.seed for request in world.paris.requests}) == 3


def test_each_of_several_answers_can_be_continued(tool_world):
    world, lease = tool_world, tool_world.lease()
    world.paris.script.extend([world.reply("one"), world.reply("two")])
    for choice in ask(world, lease, n=2).choices:
        ask(world, lease, [USER, choice.message, USER])
    turns = world.turns(lease)
    assert sorted(str(turn.parent) for turn in turns[2:]) == [turn.turn_id for turn in turns[:2]]


def test_reply_of_several_answers_survives_a_restart(tool_world):
    world, lease = tool_world, tool_world.lease()
    world.paris.script.extend([world.reply("one"), world.reply("two")])
    before = ask(world, lease, n=2)
    world.stop()
    world.start()
    again = ask(world, lease, n=2, extra_headers={"x-stainless-retry-count": "1"})
    assert again.choices == before.choices
    assert len(world.paris.requests) == 2


def test_each_sampled_token_is_recorded_with_what_it_was_for(tool_world):
    world, lease = tool_world, tool_world.lease()
    thought, said = "<think>1 and 2</think>", "I add. "
    world.paris.script.append(world.reply(f"{thought}{said}{CALL}"))
    ask(world, lease)
    (turn,) = world.turns(lease)
    # One id a byte; the end mark belongs to the call before it.
    assert turn.parts.thinking == len(thought)
    assert turn.parts.message == len(said)
    assert turn.parts.calls == len(CALL) + 1
    assert sum(dict(turn.parts).values()) == len(turn.completion.output_ids)
