"""Who decides how an answer is sampled."""

from __future__ import annotations

import openai
import pytest

from tradewind.gateway.config import GatewayConfig
from tradewind.gateway.parameters import CHAT, POLICIES, Rule, apply, table
from tradewind.gateway.refusal import Refusal
from tradewind.types import Priority, Purpose

ASKED = {"temperature": 0.1, "top_p": 0.5, "max_tokens": 5000, "seed": 3}


def test_agent_cannot_change_how_a_rollout_is_sampled(world):
    world.ask(world.lease().model_key, "hi", **ASKED, frequency_penalty=1.5)
    (request,) = world.paris.requests
    assert (request.temperature, request.top_p, request.max_tokens) == (1.0, 1.0, 64)
    assert request.seed not in (None, 3)
    assert request.priority == Priority.ROLLOUT
    assert request.stop_ids == world.paris.renderer.stop_ids
    assert world.gateway.metrics.overridden == dict.fromkeys([*ASKED, "frequency_penalty"], 1)


def test_evaluation_is_greedy_whatever_is_asked(world):
    world.ask(world.eval_lease(0).model_key, "hi", **ASKED)
    (request,) = world.paris.requests
    assert (request.temperature, request.top_p, request.seed) == (0.0, 1.0, None)
    assert request.priority == Priority.EVAL


def test_users_get_what_they_ask_for(world):
    world.client().chat.completions.create(
        model="m", messages=[{"role": "user", "content": "x"}], **{**ASKED, "max_tokens": 7}
    )
    (request,) = world.paris.requests
    assert (request.temperature, request.top_p, request.max_tokens) == (0.1, 0.5, 7)
    assert (request.seed, request.priority) == (3, Priority.USER)


def test_short_answer_ends_by_length_and_the_next_turn_extends_it(world):
    lease = world.lease()
    world.paris.script.append(world.reply("hello"))
    answer = world.ask(lease.model_key, "hi", max_completion_tokens=3)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("hel", "length")
    world.ask(lease.model_key, "hi", "hel", "more")
    one, two = world.turns(lease)
    assert two.parent == one.turn_id
    spoken = one.prompt_ids + one.completion.output_ids
    assert two.prompt_ids[: len(spoken) + 1] == (*spoken, 258)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"n": 0}, "invalid_value"),
        ({"n": 17}, "invalid_value"),
        ({"stop": [""]}, "invalid_value"),
        ({"functions": [{}]}, "unsupported_parameter"),
        ({"logprobs": True}, "unsupported_parameter"),
        ({"response_format": {"type": "json_object"}}, "unsupported_parameter"),
        ({"temprature": 1}, "unknown_parameter"),
        ({"temperature": "hot"}, "invalid_value"),
        ({"temperature": 3}, "invalid_value"),
        ({"max_tokens": 0}, "invalid_value"),
        ({"max_tokens": 1.5}, "invalid_value"),
        ({"stream": "yes"}, "invalid_value"),
    ],
    ids=str,
)
@pytest.mark.parametrize("purpose", [None, Purpose.TRAIN])
def test_what_cannot_be_served_is_refused_with_its_name(purpose, body, code):
    with pytest.raises(Refusal) as caught:
        apply(CHAT, body, purpose, GatewayConfig(), lambda name: None)
    assert (caught.value.status, caught.value.code) == (400, code)
    assert caught.value.param in body


@pytest.mark.parametrize(
    ("policy", "row"),
    [(policy, row) for policy in POLICIES for row in policy.rows.values()],
    ids=lambda value: getattr(value, "name", None) or value.dialect,
)
def test_values_that_mean_nothing_are_always_allowed(policy, row):
    replaced = []
    for value in row.neutral:
        for purpose in (None, *Purpose):
            with_it = apply(policy, {row.name: value}, purpose, GatewayConfig(), replaced.append)
            assert with_it == apply(policy, {}, purpose, GatewayConfig(), replaced.append)
    assert replaced == []


TELLING = {
    "messages": [{"role": "user", "content": "hi"}],
    "stream": True,
    "n": 2,
    "stop": ["."],
    "stop_sequences": ["."],
    "max_tokens": 10**6,
    "max_completion_tokens": 10**6,
    "max_output_tokens": 10**6,
    "temperature": 0.3,
    "top_p": 0.5,
    "seed": 3,
}
"""Values that would change something; of all other parameters any value does."""


@pytest.mark.parametrize("purpose", [None, *Purpose])
@pytest.mark.parametrize(
    ("policy", "row"),
    [(policy, row) for policy in POLICIES for row in policy.rows.values()],
    ids=lambda value: getattr(value, "name", None) or value.dialect,
)
def test_every_row_does_what_the_printed_table_says(policy, row, purpose):
    outer, _, inner = row.name.partition(".")
    value = TELLING.get(row.name, {"x": 1})
    body = {outer: {inner: value} if inner else value}
    rule = row.user if purpose is None else row.rollout
    counted: list[str] = []
    plain = apply(policy, {}, purpose, GatewayConfig(), counted.append)
    if rule is Rule.REJECT:
        with pytest.raises(Refusal, match=row.name) as caught:
            apply(policy, body, purpose, GatewayConfig(), counted.append)
        assert (caught.value.status, caught.value.param) == (400, row.name)
        return
    given = apply(policy, body, purpose, GatewayConfig(), counted.append)
    counts = rule in (Rule.FORCE, Rule.CLAMP)
    assert counted == ([row.name] if counts else [])
    heeded = (
        "n",
        "stop",
        "stop_sequences",
        *(("temperature", "top_p", "seed") if not counts else ()),
    )
    assert (given != plain) is (row.name in heeded)


def test_users_are_told_when_a_penalty_would_be_ignored():
    with pytest.raises(Refusal, match="frequency_penalty"):
        apply(CHAT, {"frequency_penalty": 1.0}, None, GatewayConfig(), lambda name: None)


def test_table_prints_every_parameter():
    tables = table().split("\n\n")
    for policy, printed in zip(POLICIES, tables, strict=True):
        lines = printed.splitlines()
        assert len(lines) == len(policy.rows) + 1
        assert lines[0].startswith(policy.dialect)
        assert any(line.split()[:3] == ["temperature", "force", "pass"] for line in lines)
        assert {row.rollout for row in policy.rows.values()} == set(Rule)


def test_misspelt_parameter_gets_400_over_http(world):
    with pytest.raises(openai.BadRequestError, match="max_token"):
        world.ask(world.lease().model_key, "hi", extra_body={"max_token": 5})
