"""Tool calls in a model's own writing, read back from its text.

    text of an answer ──► parser of the family ──► Said: content, calls

A block that does not parse stays text, so a call that was cut off half-way is never executed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from tradewind.types import Json


@dataclass(frozen=True)
class ToolCall:
    """One call. Arguments are an object, whatever its spacing in the text was."""

    name: str
    arguments: Json

    def to_chat(self, call_id: str) -> Json:
        """In the shape of chat completions."""
        text = json.dumps(self.arguments, ensure_ascii=False)
        return {
            "id": call_id,
            "type": "function",
            "function": {"name": self.name, "arguments": text},
        }


@dataclass(frozen=True)
class Said:
    """What an answer means: content for people, calls for the agent."""

    content: str
    calls: tuple[ToolCall, ...] = ()

    def means(self, other: Said) -> bool:
        """Equal but for whitespace around the content, which agents and templates trim."""
        return self.content.strip() == other.content.strip() and self.calls == other.calls


class ToolParser(Protocol):
    """Reads one family's tool calls. Stateless."""

    name: str

    def parse(self, text: str, tools: Collection[str]) -> Said:
        """Content and calls of a whole answer; `tools` are the names that were offered."""

    def spans(self, text: str, tools: Collection[str]) -> list[tuple[int, int]]:
        """From where to where the calls stand in a whole answer, marks included."""

    def shown(self, text: str) -> int:
        """How many characters of an unfinished answer are content whatever follows."""


class Plain:
    """No tools were offered: everything is content."""

    name = "plain"

    def parse(self, text: str, tools: Collection[str]) -> Said:
        """All of it."""
        return Said(text)

    def spans(self, text: str, tools: Collection[str]) -> list[tuple[int, int]]:
        """None."""
        return []

    def shown(self, text: str) -> int:
        """All of it."""
        return len(text)


class Hermes:
    """`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`: Hermes, Qwen 2.5 and 3."""

    name = "hermes"
    _open, _close = "<tool_call>", re.compile(r"\s*</tool_call>")

    def parse(self, text: str, tools: Collection[str]) -> Said:
        """Blocks become calls, the text around them content."""
        calls, rest, position = list[ToolCall](), list[str](), 0
        for start, end, call in self._blocks(text):
            calls.append(call)
            rest.append(text[position:start].strip() if rest else text[position:start].rstrip())
            position = end
        if not calls:
            return Said(text)
        rest.append(text[position:].strip())
        return Said("\n".join(piece for piece in rest if piece), tuple(calls))

    def spans(self, text: str, tools: Collection[str]) -> list[tuple[int, int]]:
        """The blocks that are calls."""
        return [(start, end) for start, end, _ in self._blocks(text)]

    def shown(self, text: str) -> int:
        """Up to the first mark or what may become one; whitespace before it is not content."""
        start = text.find(self._open)
        end = start if start >= 0 else len(text) - overlap(text, self._open)
        return len(text[:end].rstrip())

    def _blocks(self, text: str) -> Iterator[tuple[int, int, ToolCall]]:
        start = text.find(self._open)
        while start >= 0:
            position = start + len(self._open)
            found = _object(text, position)
            closed = self._close.match(text, found[1]) if found else None
            call = _as_call(found[0]) if found else None
            if call is not None and closed is not None:
                yield start, closed.end(), call
                position = closed.end()
            start = text.find(self._open, position)


class PlainJson:
    """The whole answer is one call, or a list of them, as JSON: Llama 3 and others.

    Only names that were offered count, because an answer may be JSON without being a call.
    """

    name = "json"
    _fence = re.compile(r"\A```(?:json)?\s*\n(.*)\n```\Z", re.DOTALL)
    _prefixes = ("<|python_tag|>", "[TOOL_CALLS]")

    def parse(self, text: str, tools: Collection[str]) -> Said:
        """Calls without content, or content without calls."""
        body = text.strip()
        for prefix in self._prefixes:
            body = body.removeprefix(prefix).strip()
        fenced = self._fence.match(body)
        read = _whole(fenced[1] if fenced else body)
        items = read if isinstance(read, list) else [read]
        calls = [_as_call(item) for item in items]
        known = [call for call in calls if call is not None and call.name in tools]
        return Said("", tuple(known)) if known and len(known) == len(items) else Said(text)

    def spans(self, text: str, tools: Collection[str]) -> list[tuple[int, int]]:
        """All of it or nothing."""
        return [(0, len(text))] if self.parse(text, tools).calls else []

    def shown(self, text: str) -> int:
        """Nothing of what may be a call, everything of what cannot be one."""
        begun = text.lstrip()
        return 0 if not begun or begun[0] in "{[`<" else len(text)


PARSERS: tuple[ToolParser, ...] = (Hermes(), PlainJson())
"""In the order in which they are tried on a template."""


def overlap(text: str, mark: str) -> int:
    """How many last characters of `text` may be the beginning of `mark`.

    >>> overlap("a <tool", "<tool_call>")
    5
    """
    most = min(len(text), len(mark) - 1)
    return next((n for n in range(most, 0, -1) if text.endswith(mark[:n])), 0)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def _object(text: str, position: int) -> tuple[Any, int] | None:
    """The JSON value at `position`, and where it ends."""
    while position < len(text) and text[position].isspace():
        position += 1
    try:
        return _DECODER.raw_decode(text, position)
    except (ValueError, RecursionError):
        return None


def _whole(text: str) -> object:
    found = _object(text, 0)
    return found[0] if found is not None and not text[found[1] :].strip() else None


def _as_call(read: object) -> ToolCall | None:
    if not isinstance(read, dict) or not isinstance(read.get("name"), str):
        return None
    arguments = read.get("arguments", read.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = _whole(arguments)
    return ToolCall(read["name"], arguments) if isinstance(arguments, dict) else None
