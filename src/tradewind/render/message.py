"""Messages in one canonical shape: a role, a string of content, and no empty keys.

Clients send the same message in several shapes (content as parts, `None` for an empty string,
keys that are null). The canonical shape decides what is rendered, and whether one conversation
continues another; it never decides which ids are trained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tradewind.types import Json, UserError

_TEXT_PARTS = ("text", "input_text", "output_text")


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
    shaped = {k: v for k, v in message.items() if v is not None and v != [] and k != "content"}
    return {"role": shaped.pop("role"), "content": _text(index, message.get("content")), **shaped}


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
