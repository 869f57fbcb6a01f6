"""How a model family is told of tools, and how it writes its calls.

A template that knows tools writes them and calls itself; the parser is the one that reads back what
the template writes. A template that does not, or that writes what no parser reads, is used without
tools: instructions and calls then travel as plain text, in the Hermes form, and so do results if
the template has no role for them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from tradewind.render.template import ChatTemplate
from tradewind.render.toolcalls import PARSERS, Hermes, Said, ToolCall, ToolParser
from tradewind.types import Json, UserError

_NAME, _WHAT, _ARGUMENT = "probe_tool_x7Qz9", "probe description 4Kd", "probe_argument"
_TOOL: Json = {
    "type": "function",
    "function": {
        "name": _NAME,
        "description": _WHAT,
        "parameters": {"type": "object", "properties": {_ARGUMENT: {"type": "integer"}}},
    },
}
_CALL = ToolCall(_NAME, {_ARGUMENT: 7})
_MARK = "x7Qz9mark4Kd"

_BLOCK = "<tool_call>\n{}\n</tool_call>"

_INSTRUCTIONS = """\
You may call one or more of these functions:
<tools>
{tools}
</tools>
To call one, write a JSON object with its name and arguments inside <tool_call> marks:
<tool_call>
{{"name": "function name", "arguments": {{"argument": "value"}}}}
</tool_call>"""


@dataclass(frozen=True)
class ToolForm:
    """Chosen once per model."""

    parser: ToolParser
    native: bool
    """Whether the template itself writes tools and calls."""
    results: bool = True
    """Whether it writes results."""
    sample: str = _BLOCK.format(json.dumps({"name": _NAME, "arguments": _CALL.arguments}))
    """How a call of the probe is written."""

    def __str__(self) -> str:
        whose = "the model's chat template" if self.native else "our own instructions"
        return f"tools are written by {whose}, calls are read as {self.parser.name}"

    def opening(self, name: str | None) -> str | None:
        """How an answer begins that calls the function `name`, or any: up to where the policy has
        something to choose. None if calls are written in another order.
        """
        called, arguments = self.sample.find(json.dumps(_NAME)), self.sample.find(_ARGUMENT)
        brace = self.sample.rfind("{", 0, max(arguments, 0))
        if not 0 <= called < brace:
            return None
        if name is None:
            return self.sample[:called].rstrip()
        head, tail = self.sample[:called], self.sample[called + len(json.dumps(_NAME)) : brace]
        return (head + json.dumps(name) + tail).rstrip()

    def prepare(self, messages: Sequence[Json], tools: Sequence[Json]) -> tuple[Json, ...]:
        """What the template is given; itself for a native form."""
        if self.native:
            return tuple(messages)
        said = [_as_text(message) for message in messages]
        spoken = said if self.results else _as_users(said)
        return tuple(_instructed(spoken, tools) if tools else spoken)


def choose_form(template: ChatTemplate) -> ToolForm:
    """The form that gives back a probe call; our own if none does."""
    try:
        written = _written(template)
    except UserError:  # the template refuses tools, or roles of the probe
        written = None
    if written is not None:
        for parser in PARSERS:
            if parser.parse(written, {_NAME}).means(Said("", (_CALL,))):
                return ToolForm(parser, native=True, sample=written)
    return ToolForm(Hermes(), native=False, results=_writes_results(template))


def _writes_results(template: ChatTemplate) -> bool:
    said = {"role": "assistant", "content": "x"}
    result = {"role": "tool", "content": _MARK}
    try:
        return _MARK in template.render([{"role": "user", "content": "hi"}, said, result])
    except UserError:
        return False


def _written(template: ChatTemplate) -> str | None:
    """The template's text of an assistant's call; None if it does not name the tools offered."""
    user = {"role": "user", "content": "hi"}
    opening = template.render([user], tools=[_TOOL])
    if _NAME not in opening or _WHAT not in opening:
        return None
    function = {"name": _NAME, "arguments": dict(_CALL.arguments)}
    call = {"id": "call00000", "type": "function", "function": function}
    said = {"role": "assistant", "content": "", "tool_calls": [call]}
    result = {"role": "tool", "content": _MARK, "name": _NAME, "tool_call_id": call["id"]}
    whole = template.render([user, said], tools=[_TOOL], add_generation_prompt=False)
    marked = {"role": "assistant", "content": _MARK}
    plain = template.render([user, marked], tools=[_TOOL], add_generation_prompt=False)
    end = plain.partition(_MARK)[2]
    answered = template.render([user, said, result], tools=[_TOOL])
    if not whole.startswith(opening) or not whole.endswith(end) or _MARK not in answered:
        return None
    return whole[len(opening) : len(whole) - len(end)]


def _as_text(message: Json) -> Json:
    """Calls become part of the content."""
    if "tool_calls" not in message:
        return message
    texts = [json.dumps(call["function"], ensure_ascii=False) for call in message["tool_calls"]]
    blocks = [_BLOCK.format(text) for text in texts]
    content = "\n".join(([message["content"]] if message["content"] else []) + blocks)
    return {**{k: v for k, v in message.items() if k != "tool_calls"}, "content": content}


def _as_users(messages: Sequence[Json]) -> list[Json]:
    """Results are said by the user; those of parallel calls together, as roles take turns."""
    found: list[Json] = []
    after_result = False
    for message in messages:
        result = message["role"] == "tool"
        text = f"<tool_response>\n{message['content']}\n</tool_response>"
        if result and after_result:
            found[-1] = {"role": "user", "content": found[-1]["content"] + "\n" + text}
        else:
            found.append({"role": "user", "content": text} if result else message)
        after_result = result
    return found


def _instructed(messages: Sequence[Json], tools: Sequence[Json]) -> list[Json]:
    lines = [json.dumps(tool, ensure_ascii=False) for tool in tools]
    text = _INSTRUCTIONS.format(tools="\n".join(lines))
    if messages[0]["role"] == "system":
        first = messages[0]["content"]
        head = {**messages[0], "content": f"{first}\n\n{text}" if first else text}
        return [head, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]
