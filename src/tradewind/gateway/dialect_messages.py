"""Anthropic Messages: requests, answers, streams and errors, to and from the internal call."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tradewind.gateway.answer import Answer, Reply
from tradewind.gateway.config import GatewayConfig
from tradewind.gateway.dialect import (
    Ask,
    Asker,
    Speaker,
    chosen,
    function_tool,
    objects,
    read_ask,
    sse,
)
from tradewind.gateway.parameters import MESSAGES
from tradewind.gateway.refusal import Refusal, bad_request
from tradewind.types import FinishReason, Json

_ERROR_TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
_HIDDEN = ("thinking", "redacted_thinking")
"""Blocks that only the provider's own models make; the policy's reasoning is text."""


class Messages:
    """`POST /v1/messages`."""

    policy = MESSAGES

    def parse(self, raw: bytes, headers: Mapping[str, str], asker: Asker) -> Ask:
        """System, blocks and tools, in the internal shape."""
        return read_ask(_SPEAKER, raw, headers, asker)

    def whole(self, reply: Reply, ask: Ask) -> Json:
        """A `message`."""
        answer = reply.first
        text = [{"type": "text", "text": answer.text}] if answer.text else []
        content = [*text, *(_tool_use(call) for call in answer.tool_calls)]
        return {
            **_head(answer, ask.model),
            "content": content,
            **_end(answer),
            "usage": _usage(answer),
        }

    def stream(self, reply: Reply, ask: Ask) -> MessageStream:
        """Events from `message_start` to `message_stop`."""
        return MessageStream(reply.first, ask.model)

    def error(self, refusal: Refusal) -> Json:
        """Anthropic's error object."""
        kind = "api_error" if refusal.status >= 500 else "invalid_request_error"
        message = refusal.message
        if refusal.overflow is not None:  # the words by which its agents know an overflow
            message = "prompt is too long: {} tokens > {} maximum".format(*refusal.overflow)
        kind = _ERROR_TYPES.get(refusal.status, kind)
        return {"type": "error", "error": {"type": kind, "message": message}}


class MessageStream:
    """The events of one streamed reply: blocks one after the other, each started and stopped."""

    def __init__(self, answer: Answer, model: str) -> None:
        self._answer, self._model = answer, model
        self._block = 0
        self._open = False

    def first(self) -> bytes:
        """`message_start`."""
        end = {"stop_reason": None, "stop_sequence": None}
        usage = {**_usage(self._answer), "output_tokens": 0}
        message = {**_head(self._answer, self._model), "content": [], **end, "usage": usage}
        return _event("message_start", message=message)

    def piece(self, number: int, text: str) -> bytes:
        """Text of the one text block."""
        begun = b"" if self._open else self._start({"type": "text", "text": ""})
        self._open = True
        return begun + self._delta({"type": "text_delta", "text": text})

    def last(self) -> Iterable[bytes]:
        """Blocks of tool use, `message_delta` and `message_stop`."""
        if self._open:
            yield self._stop()
        for call in self._answer.tool_calls:
            block = _tool_use(call)
            yield self._start({**block, "input": {}})
            text = json.dumps(block["input"], ensure_ascii=False)
            yield self._delta({"type": "input_json_delta", "partial_json": text})
            yield self._stop()
        yield _event("message_delta", delta=_end(self._answer), usage=_usage(self._answer))
        yield _event("message_stop")

    def broken(self, refusal: Refusal) -> bytes:
        """An `error` event."""
        return sse(Messages().error(refusal), "error")

    def keep_alive(self) -> bytes:
        """A `ping`."""
        return _event("ping")

    def _start(self, block: Json) -> bytes:
        return _event("content_block_start", index=self._block, content_block=block)

    def _delta(self, delta: Json) -> bytes:
        return _event("content_block_delta", index=self._block, delta=delta)

    def _stop(self) -> bytes:
        self._block += 1
        return _event("content_block_stop", index=self._block - 1)


def conversation(body: Json) -> tuple[Json, ...]:
    """System and messages of a body, in the shape of chat completions; raises `Refusal` (400)."""
    found: list[Json] = []
    system = body.get("system")
    if system:
        found.append({"role": "system", "content": system})
    for message in objects(body, "messages"):
        content = message.get("content")
        if isinstance(content, list):
            found += _blocks(str(message.get("role")), content)
        else:
            found.append({"role": message.get("role"), "content": content})
    return tuple(found)


def _function(tool: Json) -> Json | None:
    if tool.get("type", "custom") not in ("custom", None):
        return None
    return function_tool(tool.get("name"), tool.get("description"), tool.get("input_schema"))


def _choice(given: object, tools: Sequence[Json]) -> Json:
    if given is None:
        return {}
    said = given if isinstance(given, dict) else {}
    ours = {"any": "required", "tool": "named"}
    kind = str(said.get("type"))
    return chosen(ours.get(kind, kind), said.get("name"), tools)


def models(config: GatewayConfig) -> Json:
    """The list of the one model, in Anthropic's shape."""
    return {
        "data": [model(config)],
        "has_more": False,
        "first_id": config.model,
        "last_id": config.model,
    }


def model(config: GatewayConfig) -> Json:
    """The one model."""
    return {
        "type": "model",
        "id": config.model,
        "display_name": config.model,
        "created_at": "1970-01-01T00:00:00Z",
    }


def _blocks(role: str, content: list[Any]) -> list[Json]:
    """One message of blocks: results of tools first, as messages of their own, then the rest."""
    if not all(isinstance(block, dict) for block in content):
        raise bad_request("Each block of a content must be an object.", param="messages")
    results = [_result(block) for block in content if block.get("type") == "tool_result"]
    calls = [_call(block) for block in content if block.get("type") == "tool_use"]
    other = ("tool_result", "tool_use", *_HIDDEN)
    parts = [block for block in content if block.get("type") not in other]
    if not parts and not calls and results:
        return results
    message: Json = {"role": role, "content": parts}
    return [*results, {**message, "tool_calls": calls} if calls else message]


def _result(block: Json) -> Json:
    return {
        "role": "tool",
        "tool_call_id": block.get("tool_use_id"),
        "content": block.get("content"),
    }


def _call(block: Json) -> Json:
    function = {"name": block.get("name"), "arguments": block.get("input") or {}}
    return {"id": block.get("id"), "type": "function", "function": function}


def _tool_use(call: Json) -> Json:
    function = call["function"]
    return {
        "type": "tool_use",
        "id": call["id"],
        "name": function["name"],
        "input": json.loads(function["arguments"]),
    }


def _head(answer: Answer, model: str) -> Json:
    return {"id": f"msg_{answer.id}", "type": "message", "role": "assistant", "model": model}


def _end(answer: Answer) -> Json:
    if answer.finish_reason is FinishReason.LENGTH:
        reason = "max_tokens"
    elif answer.tool_calls:
        reason = "tool_use"
    else:
        reason = "end_turn" if answer.stop_string is None else "stop_sequence"
    return {"stop_reason": reason, "stop_sequence": answer.stop_string}


def _usage(answer: Answer) -> Json:
    return {
        "input_tokens": answer.prompt_tokens,
        "output_tokens": answer.output_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }


def _event(kind: str, **fields: Any) -> bytes:
    return sse({"type": kind, **fields}, kind)


_SPEAKER = Speaker(MESSAGES, conversation, _function, _choice)
