"""Messages in one canonical shape: a role, a string of content, tool calls, and no empty keys.

Clients send the same message in several shapes (content as parts, `None` for an empty string,
arguments as differently spaced JSON, keys that are null or their own). The canonical shape decides
what is rendered, and whether one conversation continues another; it never decides which ids are
trained.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tradewind.types import Json, UserError

_TEXT_PARTS = ("text", "input_text", "output_text")
_READ = ("name", "tool_call_id", "reasoning_content")
"""What templates read of a message beside role, content and tool calls; the rest is dropped."""


def canonical(messages: Sequence[Mapping[str, Any]]) -> tuple[Json, ...]:
    """Each message with content as one string; raises `UserError` on a shape nobody can render.

    >>> canonical([{"role": "user", "content": [{"type": "text", "text": "hi"}], "name": None}])
    ({'role': 'user', 'content': 'hi'},)
    """
    if not messages:
        raise UserError("the conversation is empty", fix="send at least one message")
    return tuple(_canonical(index, message) for index, message in enumerate(messages))


def _canonical(index: int, message: Mapping[str, Any]) -> Json:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise UserError(
            f"message {index} has no role", value=message, fix="send objects with role and content"
        )
    role = "system" if message["role"] == "developer" else message["role"]
    shaped = {"role": role, "content": _text(index, message.get("content"))}
    shaped |= {key: message[key] for key in _READ if message.get(key)}
    calls = message.get("tool_calls")
    if calls:
        shaped["tool_calls"] = _calls(index, calls)
    return shaped


def _calls(index: int, calls: object) -> list[Json]:
    """Calls with arguments as an object, so that spacing and key escapes do not count."""
    if not isinstance(calls, Sequence) or not all(isinstance(call, Mapping) for call in calls):
        raise UserError(
            f"the tool calls of message {index} are no list of objects",
            value=calls,
            fix="send them as they were received",
        )
    return [_call(index, call) for call in calls]


def _call(index: int, call: Mapping[str, Any]) -> Json:
    function = call.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise UserError(
            f"a tool call of message {index} names no function",
            value=dict(call),
            fix="send it as it was received",
        )
    shaped: Json = {"type": "function"}
    if isinstance(call.get("id"), str):
        shaped["id"] = call["id"]
    arguments = _arguments(function.get("arguments"))
    return {**shaped, "function": {"name": function["name"], "arguments": arguments}}


def _arguments(given: object) -> object:
    """An object if the text is one: templates write objects themselves."""
    if not isinstance(given, str):
        return given or {}
    try:
        read = json.loads(given or "{}")
    except ValueError:
        return given
    return read if isinstance(read, dict) else given


def _text(index: int, content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise UserError(
            f"the content of message {index} is neither text nor a list of parts",
            value=content,
            fix="send a string",
        )
    return "\n".join(_part_text(index, part) for part in content)


def _part_text(index: int, part: object) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, Mapping) else None
    if isinstance(part, Mapping) and kind in _TEXT_PARTS and isinstance(part.get("text"), str):
        return str(part["text"])
    raise UserError(
        f"message {index} holds a content part that this model cannot read",
        value=kind,
        fix="send text parts only; images, audio and files are not supported",
    )
