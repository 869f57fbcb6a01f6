"""Which request parameters count, for whom.

    pass     taken as asked
    force    replaced by ours (a rollout's sampling belongs to the trainer)
    clamp    taken up to our limit
    ignore   without effect on the answer
    reject   400 with a sentence, unless the value means "nothing"

`python -m tradewind.gateway --parameters` prints the table. Unknown names are rejected.
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


class Rule(StrEnum):
    """What happens to a parameter."""

    PASS = "pass"
    FORCE = "force"
    CLAMP = "clamp"
    IGNORE = "ignore"
    REJECT = "reject"


@dataclass(frozen=True)
class Parameter:
    """One row: a rule for rollouts (training and evaluation) and one for users."""

    name: str
    rollout: Rule
    user: Rule
    neutral: tuple[Any, ...] = (None,)
    """Values that mean "nothing", allowed under every rule."""
    note: str = ""


def _same(rule: Rule, *names: str, neutral: tuple[Any, ...] = (None,), note: str = "") -> list[Any]:
    return [Parameter(name, rule, rule, neutral, note) for name in names]


_SAMPLING = ("temperature", "top_p", "seed")
_SAMPLED = (Rule.FORCE, Rule.PASS)
_SHAPED = (Rule.FORCE, Rule.REJECT)

CHAT: dict[str, Parameter] = {
    p.name: p
    for p in (
        *_same(Rule.PASS, "messages", "stream", "stream_options"),
        *_same(Rule.IGNORE, "model", note="one model is served, under any name"),
        *_same(Rule.CLAMP, "max_tokens", "max_completion_tokens"),
        Parameter("temperature", *_SAMPLED, note="training: as configured; evaluation: 0"),
        Parameter("top_p", *_SAMPLED, note="rollouts: 1"),
        Parameter("seed", *_SAMPLED, note="rollouts: from the run's seed, differs per turn"),
        Parameter("frequency_penalty", *_SHAPED, neutral=(None, 0)),
        Parameter("presence_penalty", *_SHAPED, neutral=(None, 0)),
        Parameter("repetition_penalty", *_SHAPED, neutral=(None, 1)),
        Parameter("top_k", *_SHAPED, neutral=(None, -1, 0)),
        Parameter("min_p", *_SHAPED, neutral=(None, 0)),
        Parameter("logit_bias", *_SHAPED, neutral=(None, {})),
        *_same(Rule.REJECT, "n", neutral=(None, 1)),
        *_same(Rule.REJECT, "stop", neutral=(None, [])),
        *_same(Rule.REJECT, "tools", "functions", neutral=(None, [])),
        *_same(Rule.REJECT, "tool_choice", "function_call", neutral=(None, "none", "auto")),
        *_same(Rule.REJECT, "logprobs", neutral=(None, False)),
        *_same(Rule.REJECT, "top_logprobs", neutral=(None, 0)),
        *_same(Rule.REJECT, "response_format", neutral=(None, {"type": "text"})),
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
    )
}


def table() -> str:
    """The policy as text, one parameter a line."""
    rows = [("parameter", "rollout", "user", "note")]
    rows += [(p.name, p.rollout.value, p.user.value, p.note) for p in CHAT.values()]
    return "\n".join(
        f"{name:24}{rollout:9}{user:9}{note}".rstrip() for name, rollout, user, note in rows
    )


def apply(
    body: Json, purpose: Purpose | None, config: GatewayConfig, count: Callable[[str], None]
) -> Sampling:
    """The sampling that a body gets; `purpose` None is a user. Raises `Refusal` (400).

    `count` is called with the name of each parameter whose value was replaced.
    """
    for name, value in body.items():
        row = CHAT.get(name)
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
                f"'{name}' is not supported here. Leave it out.",
                param=name,
                code="unsupported_parameter",
            )
        if rule is Rule.FORCE and name not in _SAMPLING and value not in row.neutral:
            count(name)
    asked = Sampling(
        temperature=_number(body, "temperature", 1.0, 0.0, 2.0),
        top_p=_number(body, "top_p", 1.0, 0.0, 1.0),
        max_tokens=_max_tokens(body, config.max_tokens),
        seed=_integer(body, "seed"),
    )
    given = _forced(asked, purpose, config)
    for name in _SAMPLING:
        if body.get(name) is not None and getattr(given, name) != getattr(asked, name):
            count(name)
    for name in ("max_tokens", "max_completion_tokens"):
        if body.get(name) is not None and body[name] > given.max_tokens:
            count(name)
    return given


def _forced(asked: Sampling, purpose: Purpose | None, config: GatewayConfig) -> Sampling:
    if purpose is None:
        return asked
    temperature = 0.0 if purpose is Purpose.EVAL else config.temperature
    return Sampling(temperature=temperature, top_p=1.0, max_tokens=asked.max_tokens)


def _max_tokens(body: Json, limit: int) -> int:
    asked = [_integer(body, name) for name in ("max_completion_tokens", "max_tokens")]
    given = [n for n in asked if n is not None]
    if any(n < 1 for n in given):
        raise bad_request("'max_tokens' must be at least 1.", param="max_tokens")
    return min([*given, limit])


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
