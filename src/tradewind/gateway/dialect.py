"""A dialect: translations between what an agent's SDK speaks and the internal call.

    body, headers ──► parse ──► Ask(call, body)
    Reply         ──► whole | Stream ──► body | server-sent events
    Refusal       ──► error ──► body, headers

A dialect decides nothing: what a call means is the same in all of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any, NamedTuple, Protocol

from tradewind.gateway.answer import Reply
from tradewind.gateway.call import ANY, Call, Sampling
from tradewind.gateway.config import GatewayConfig
from tradewind.gateway.parameters import Count, Policy, apply, asked_for
from tradewind.gateway.refusal import Refusal, bad_request
from tradewind.types import Json, Purpose


@dataclass(frozen=True)
class Ask:
    """The internal call, and the body for what concerns the answer's shape only."""

    call: Call
    body: Json
    model: str
    """The name under which the answer says it was served."""

    @property
    def streamed(self) -> bool:
        """Whether the answer is asked for as server-sent events."""
        return self.body.get("stream") is True


class Stream(Protocol):
    """The events of one streamed reply, in order."""

    def first(self) -> bytes:
        """Before any text."""

    def piece(self, number: int, text: str) -> bytes:
        """Some text of one answer."""

    def last(self) -> Iterable[bytes]:
        """Tool calls, why it ended, usage, and the end mark."""

    def broken(self, refusal: Refusal) -> bytes:
        """In the middle of a stream there is no status left to send."""

    def keep_alive(self) -> bytes:
        """Something that clients skip."""


@dataclass(frozen=True)
class Asker:
    """What a dialect needs to know to read a body."""

    config: GatewayConfig
    purpose: Purpose | None
    """None is a user."""
    count: Count
    """Hears the names of overridden parameters."""


class Dialect(Protocol):
    """One way to speak."""

    policy: Policy

    def parse(self, raw: bytes, headers: Mapping[str, str], asker: Asker) -> Ask:
        """Raises `Refusal` (400)."""

    def whole(self, reply: Reply, ask: Ask) -> Json:
        """A reply that is not streamed."""

    def stream(self, reply: Reply, ask: Ask) -> Stream:
        """The events of one that is."""

    def error(self, refusal: Refusal) -> Json:
        """A refusal's body."""


def read_object(raw: bytes) -> Json:
    """A JSON object; raises `Refusal` (400)."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"The body is not JSON: {error}.") from error
    if not isinstance(body, dict):
        raise bad_request("The body must be a JSON object.")
    return body


def objects(body: Json, name: str) -> list[Json]:
    """A field that must be a list of at least one object; raises `Refusal` (400)."""
    value = body.get(name)
    if not isinstance(value, list) or not value:
        raise bad_request(f"'{name}' must be a list of at least one message.", param=name)
    if not all(isinstance(item, dict) for item in value):
        raise bad_request(f"Each of '{name}' must be an object.", param=name)
    return value


class Speaker(NamedTuple):
    """How one dialect says what all have; each function may raise `Refusal` (400)."""

    policy: Policy
    conversation: Callable[[Json], tuple[Json, ...]]
    """Messages of a body, in the shape of chat completions."""
    function: Callable[[Json], Json | None]
    """One of its tools as `function_tool` gives it; None for a tool of the provider."""
    choice: Callable[[object, Sequence[Json]], Json]
    """What `tool_choice` and the tools that are offered mean for the call; see `chosen`."""
    own: Callable[[Json], Json] = lambda _: {}
    """Fields of the call that no other dialect has."""


def read_ask(speaker: Speaker, raw: bytes, headers: Mapping[str, str], asker: Asker) -> Ask:
    """A request as `speaker` understands it; raises `Refusal` (400)."""
    body = read_object(raw)
    tools = _offered(body.get("tools"), speaker.function, asker)
    fields = {"messages": speaker.conversation(body), "tools": tools, **speaker.own(body)}
    fields |= speaker.choice(body.get("tool_choice"), tools)
    return Ask(_call(speaker.policy, raw, body, headers, asker, **fields), body, asker.config.model)


def _offered(
    given: object, function: Callable[[Json], Json | None], asker: Asker
) -> tuple[Json, ...]:
    """The customer's functions; tools of the provider are not offered, and counted."""
    if not given:
        return ()
    if not isinstance(given, list) or not all(isinstance(tool, dict) for tool in given):
        raise bad_request("'tools' must be a list of objects.", param="tools")
    found = []
    for tool in given:
        known = function(tool)
        if known is None:
            asker.count(f"tools.{tool.get('type')}")
        else:
            found.append(known)
    return tuple(found)


def _call(
    policy: Policy,
    raw: bytes,
    body: Json,
    headers: Mapping[str, str],
    asker: Asker,
    **own: Any,
) -> Call:
    sampling: Sampling = apply(policy, body, asker.purpose, asker.config, asker.count)
    model = str(body.get("model", ""))
    asked = {**asked_for(policy, body), **own.pop("asked", {})}
    return Call(
        sampling=sampling,
        digest=hashlib.sha256(raw).hexdigest(),
        retry=_retries(headers) > 0,
        idempotency_key=headers.get("idempotency-key"),
        dialect=policy.dialect,
        asked=asked,
        auxiliary=any(fnmatch(model, name) for name in asker.config.auxiliary_models),
        **own,
    )


def chosen(kind: object, name: object, tools: Sequence[Json]) -> Json:
    """What a call may and must do with its tools; raises `Refusal` (400).

    `kind` is none, auto, required or named, and `name` then the function's.
    """
    if kind in ("auto", "none"):
        return {"calls": kind == "auto"}
    if kind not in ("required", "named"):
        raise _wrong_choice("none, auto, required, or one of the tools by its name")
    offered = [tool["function"]["name"] for tool in tools]
    if not offered:
        raise _wrong_choice("none or auto where no tools are offered")
    if kind == "named" and name not in offered:
        raise _wrong_choice(f"one of the tools that are offered: {', '.join(offered)}")
    return {"must": name if kind == "named" else ANY}


def _wrong_choice(expected: str) -> Refusal:
    return bad_request(f"'tool_choice' must be {expected}.", param="tool_choice")


def function_tool(name: object, description: object, parameters: object) -> Json:
    """A tool in the shape of chat completions; raises `Refusal` (400) for one without a name."""
    if not isinstance(name, str) or not name:
        raise bad_request("Each of 'tools' must have a name.", param="tools")
    function: Json = {"name": name}
    if isinstance(description, str) and description:
        function["description"] = description
    function["parameters"] = (
        parameters if isinstance(parameters, dict) else {"type": "object", "properties": {}}
    )
    return {"type": "function", "function": function}


def error_headers(refusal: Refusal) -> dict[str, str]:
    """When to come back, and for the SDKs, which retry 409 by themselves, that they need not."""
    if refusal.retry_after_s is not None:
        seconds = max(1, round(refusal.retry_after_s))
        milliseconds = str(int(refusal.retry_after_s * 1000))
        return {"retry-after": str(seconds), "retry-after-ms": milliseconds}
    return {"x-should-retry": "false"} if refusal.status < 500 else {}


def sse(data: Any, event: str | None = None) -> bytes:
    """One server-sent event."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    name = f"event: {event}\n" if event is not None else ""
    return f"{name}data: {text}\n\n".encode()


def _retries(headers: Mapping[str, str]) -> int:
    mark = headers.get("x-stainless-retry-count", "0")
    return int(mark) if mark.isdigit() else 0
