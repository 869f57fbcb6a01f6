"""Which request parameters count, for whom, in each dialect.

    pass     taken as asked
    force    replaced by ours (a rollout's sampling belongs to the trainer)
    clamp    taken up to our limit
    ignore   without effect on the answer
    reject   400 with a sentence, unless the value means "nothing"

`python -m tradewind.gateway --parameters` prints the tables. Unknown names are rejected. What the
agent asked for and what it got are both recorded with the turn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tradewind.gateway.call import Sampling
from tradewind.gateway.config import GatewayConfig
from tradewind.gateway.refusal import Refusal, bad_request
from tradewind.types import Json, Purpose

Count = Callable[[str], None]


class Rule(StrEnum):
    """What happens to a parameter."""

    PASS = "pass"
    FORCE = "force"
    CLAMP = "clamp"
    IGNORE = "ignore"
    REJECT = "reject"


@dataclass(frozen=True)
class Parameter:
    """One row: a rule for rollouts (training and evaluation) and one for users.

    A name with a dot is a field of an object.
    """

    name: str
    rollout: Rule
    user: Rule
    neutral: tuple[Any, ...] = (None,)
    """Values that mean "nothing", allowed under every rule."""
    note: str = ""


@dataclass(frozen=True)
class Policy:
    """The table of one dialect, and what it calls the things that count."""

    dialect: str
    rows: dict[str, Parameter]
    max_tokens: tuple[str, ...]
    stop: str | None
    hottest: float
    """Highest temperature that the dialect knows."""


def _same(rule: Rule, *names: str, neutral: tuple[Any, ...] = (None,), note: str = "") -> list[Any]:
    return [Parameter(name, rule, rule, neutral, note) for name in names]


def _rows(*rows: Parameter) -> dict[str, Parameter]:
    return {row.name: row for row in rows}


_SAMPLING = ("temperature", "top_p", "seed")
_SAMPLED = (Rule.FORCE, Rule.PASS)
_SHAPED = (Rule.FORCE, Rule.REJECT)
_TOOL_NOTE = "functions; tools of the provider are not offered to the model"
_CHOICE_NOTE = "required, or a name: the answer is begun as that call, the policy writes the rest"
_FORMAT_NOTE = "nothing constrains the policy: ask in words, or by a tool"
_TEMPERATURE = Parameter("temperature", *_SAMPLED, note="training: as configured; evaluation: 0")
_TOP_P = Parameter("top_p", *_SAMPLED, note="rollouts: 1")
_STOP_NOTE = "cuts the text; the ids stay as sampled"

CHAT = Policy(
    dialect="chat",
    max_tokens=("max_completion_tokens", "max_tokens"),
    stop="stop",
    hottest=2.0,
    rows=_rows(
        *_same(Rule.PASS, "messages", "stream", "stream_options"),
        *_same(Rule.PASS, "tools", note=_TOOL_NOTE),
        *_same(Rule.PASS, "stop", note=_STOP_NOTE),
        *_same(Rule.PASS, "n", note="each answer is a turn of its own"),
        *_same(Rule.IGNORE, "model", note="one model is served, under any name"),
        *_same(Rule.CLAMP, "max_tokens", "max_completion_tokens"),
        _TEMPERATURE,
        _TOP_P,
        Parameter("seed", *_SAMPLED, note="rollouts: from the run's seed, differs per turn"),
        *_same(Rule.PASS, "tool_choice", neutral=(None, "none", "auto"), note=_CHOICE_NOTE),
        Parameter("frequency_penalty", *_SHAPED, neutral=(None, 0)),
        Parameter("presence_penalty", *_SHAPED, neutral=(None, 0)),
        Parameter("repetition_penalty", *_SHAPED, neutral=(None, 1)),
        Parameter("top_k", *_SHAPED, neutral=(None, -1, 0)),
        Parameter("min_p", *_SHAPED, neutral=(None, 0)),
        Parameter("logit_bias", *_SHAPED, neutral=(None, {})),
        *_same(Rule.REJECT, "functions", neutral=(None, []), note="use tools"),
        *_same(Rule.REJECT, "function_call", neutral=(None, "none", "auto"), note="use tools"),
        *_same(Rule.REJECT, "logprobs", neutral=(None, False)),
        *_same(Rule.REJECT, "top_logprobs", neutral=(None, 0)),
        *_same(Rule.REJECT, "response_format", neutral=(None, {"type": "text"}), note=_FORMAT_NOTE),
        *_same(Rule.REJECT, "modalities", neutral=(None, ["text"])),
        *_same(Rule.REJECT, "audio", "prediction", "web_search_options"),
        *_same(
            Rule.IGNORE,
            "user",
            "metadata",
            "store",
            "service_tier",
            "parallel_tool_calls",
            "reasoning_effort",
            "verbosity",
            "safety_identifier",
            "prompt_cache_key",
            "prompt_cache_retention",
        ),
    ),
)

MESSAGES = Policy(
    dialect="messages",
    max_tokens=("max_tokens",),
    stop="stop_sequences",
    hottest=1.0,
    rows=_rows(
        *_same(Rule.PASS, "messages", "system", "stream"),
        *_same(Rule.PASS, "tools", note=_TOOL_NOTE),
        *_same(Rule.PASS, "stop_sequences", note=_STOP_NOTE),
        *_same(Rule.IGNORE, "model", note="one model is served, under any name"),
        *_same(Rule.CLAMP, "max_tokens"),
        _TEMPERATURE,
        _TOP_P,
        *_same(
            Rule.PASS,
            "tool_choice",
            neutral=(None, {"type": "auto"}, {"type": "none"}),
            note=_CHOICE_NOTE.replace("required", "any"),
        ),
        Parameter("top_k", *_SHAPED, neutral=(None, 0)),
        *_same(Rule.REJECT, "mcp_servers", neutral=(None, [])),
        *_same(Rule.REJECT, "output_format", "output_config.format", note=_FORMAT_NOTE),
        *_same(Rule.REJECT, "container"),
        *_same(
            Rule.IGNORE,
            "thinking",
            "metadata",
            "service_tier",
            "context_management",
            "cache_control",
            "output_config",
            "inference_geo",
            "betas",
        ),
    ),
)

RESPONSES = Policy(
    dialect="responses",
    max_tokens=("max_output_tokens",),
    stop=None,
    hottest=2.0,
    rows=_rows(
        *_same(Rule.PASS, "input", "instructions", "stream", "stream_options"),
        *_same(Rule.PASS, "previous_response_id", note="of the same session"),
        *_same(Rule.PASS, "tools", note=_TOOL_NOTE),
        *_same(Rule.IGNORE, "model", note="one model is served, under any name"),
        *_same(Rule.CLAMP, "max_output_tokens"),
        _TEMPERATURE,
        _TOP_P,
        *_same(Rule.PASS, "tool_choice", neutral=(None, "none", "auto"), note=_CHOICE_NOTE),
        *_same(Rule.REJECT, "text.format", neutral=(None, {"type": "text"}), note=_FORMAT_NOTE),
        *_same(Rule.REJECT, "background", neutral=(None, False)),
        *_same(Rule.REJECT, "conversation", "prompt"),
        *_same(Rule.REJECT, "top_logprobs", neutral=(None, 0)),
        *_same(
            Rule.IGNORE,
            "text",
            "reasoning",
            "store",
            "include",
            "truncation",
            "user",
            "metadata",
            "client_metadata",
            "service_tier",
            "parallel_tool_calls",
            "max_tool_calls",
            "safety_identifier",
            "prompt_cache_key",
            "prompt_cache_retention",
            "context_management",
        ),
    ),
)

POLICIES = (CHAT, MESSAGES, RESPONSES)


def table() -> str:
    """All policies as text, one parameter a line."""
    return "\n\n".join(_table(policy) for policy in POLICIES)


def _table(policy: Policy) -> str:
    rows = [(policy.dialect, "rollout", "user", "note")]
    rows += [(p.name, p.rollout.value, p.user.value, p.note) for p in policy.rows.values()]
    return "\n".join(
        f"{name:24}{rollout:9}{user:9}{note}".rstrip() for name, rollout, user, note in rows
    )


def apply(
    policy: Policy, body: Json, purpose: Purpose | None, config: GatewayConfig, count: Count
) -> Sampling:
    """The sampling that a body gets; `purpose` None is a user. Raises `Refusal` (400).

    `count` is called with the name of each parameter whose value was replaced.
    """
    for name, value in body.items():
        _check(policy, name, value, purpose, count)
        for inner in value if isinstance(value, dict) else ():
            if f"{name}.{inner}" in policy.rows:
                _check(policy, f"{name}.{inner}", value[inner], purpose, count)
    asked = Sampling(
        temperature=_number(body, "temperature", 1.0, 0.0, policy.hottest),
        top_p=_number(body, "top_p", 1.0, 0.0, 1.0),
        max_tokens=_max_tokens(policy, body, config.max_tokens),
        seed=_integer(body, "seed"),
        stop=_stop(policy, body),
        n=_choices(body, config.max_choices),
    )
    given = _forced(asked, purpose, config)
    for name in _SAMPLING:
        if body.get(name) is not None and getattr(given, name) != getattr(asked, name):
            count(name)
    for name in policy.max_tokens:
        if body.get(name) is not None and body[name] > given.max_tokens:
            count(name)
    return given


def asked_for(policy: Policy, body: Json) -> Json:
    """What a body says of sampling, for the record."""
    shaping = (Rule.FORCE, Rule.CLAMP)
    names = [n for n, row in policy.rows.items() if row.rollout in shaping]
    names += [n for n in ("n", "tool_choice", policy.stop) if n is not None]
    return {name: body[name] for name in names if body.get(name) is not None}


def _check(policy: Policy, name: str, value: object, purpose: Purpose | None, count: Count) -> None:
    row = policy.rows.get(name)
    if row is None:
        raise bad_request(
            f"Unrecognized request argument supplied: {name}.",
            param=name,
            code="unknown_parameter",
        )
    if name == "stream" and not isinstance(value, bool | None):
        raise _wrong(name, "true or false")
    rule = row.user if purpose is None else row.rollout
    if rule is Rule.REJECT and value not in row.neutral:
        raise bad_request(
            f"'{name}' is not supported here{f' ({row.note})' if row.note else ''}. Leave it out.",
            param=name,
            code="unsupported_parameter",
        )
    if rule is Rule.FORCE and name not in _SAMPLING and value not in row.neutral:
        count(name)


def _forced(asked: Sampling, purpose: Purpose | None, config: GatewayConfig) -> Sampling:
    if purpose is None:
        return asked
    return Sampling(
        temperature=0.0 if purpose is Purpose.EVAL else config.temperature,
        top_p=1.0,
        max_tokens=asked.max_tokens,
        stop=asked.stop,
        n=asked.n,
    )


def _max_tokens(policy: Policy, body: Json, limit: int) -> int:
    asked = [_integer(body, name) for name in policy.max_tokens]
    given = [n for n in asked if n is not None]
    if any(n < 1 for n in given):
        name = policy.max_tokens[-1]
        raise bad_request(f"'{name}' must be at least 1.", param=name)
    return min([*given, limit])


def _stop(policy: Policy, body: Json) -> tuple[str, ...]:
    value = body.get(policy.stop) if policy.stop is not None else None
    if value is None:
        return ()
    strings = [value] if isinstance(value, str) else value
    known = isinstance(strings, list) and all(isinstance(s, str) and s for s in strings)
    if not known or len(strings) > 16:
        raise _wrong(str(policy.stop), "a string that is not empty, or a list of up to 16 of them")
    return tuple(strings)


def _choices(body: Json, most: int) -> int:
    n = _integer(body, "n")
    if n is None:
        return 1
    if not 1 <= n <= most:
        raise _wrong("n", f"an integer from 1 to {most}")
    return n


def _number(body: Json, name: str, default: float, low: float, high: float) -> float:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise _wrong(name, f"a number from {low:g} to {high:g}")
    return float(value)


def _integer(body: Json, name: str) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(name, "an integer")
    return value


def _wrong(name: str, expected: str) -> Refusal:
    return bad_request(f"'{name}' must be {expected}.", param=name)
