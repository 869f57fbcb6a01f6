"""OpenAI Responses: requests, answers, streams and errors, to and from the internal call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tradewind.gateway.answer import Answer, Reply
from tradewind.gateway.dialect import (
    Ask,
    Asker,
    Speaker,
    function_tool,
    objects,
    read_ask,
    sse,
)
from tradewind.gateway.dialect_chat import openai_choice, openai_error
from tradewind.gateway.parameters import RESPONSES
from tradewind.gateway.refusal import Refusal, bad_request
from tradewind.types import FinishReason, Json

_PREFIX = "resp_"


class Responses:
    """`POST /v1/responses`."""

    policy = RESPONSES

    def parse(self, raw: bytes, headers: Mapping[str, str], asker: Asker) -> Ask:
        """Instructions, items and tools, in the internal shape."""
        return read_ask(_SPEAKER, raw, headers, asker)

    def whole(self, reply: Reply, ask: Ask) -> Json:
        """A `response`."""
        return _response(reply.first, ask, _status(reply.first), _items(reply.first))

    def stream(self, reply: Reply, ask: Ask) -> ResponseStream:
        """Events from `response.created` to `response.completed` or `response.incomplete`."""
        return ResponseStream(reply.first, ask)

    def error(self, refusal: Refusal) -> Json:
        """OpenAI's error object."""
        return openai_error(refusal)


class ResponseStream:
    """The events of one streamed reply, numbered: items one after the other."""

    def __init__(self, answer: Answer, ask: Ask) -> None:
        self._answer, self._ask = answer, ask
        self._number = -1
        self._open = False

    def first(self) -> bytes:
        """`response.created` and `response.in_progress`."""
        response = _response(self._answer, self._ask, "in_progress", [])
        kinds = ("response.created", "response.in_progress")
        return b"".join(self._event(kind, response=response) for kind in kinds)

    def piece(self, number: int, text: str) -> bytes:
        """Text of the one message item."""
        begun = b"" if self._open else self._begin()
        self._open = True
        return begun + self._text("response.output_text.delta", delta=text, logprobs=[])

    def last(self) -> Iterable[bytes]:
        """The ends of the message, the function calls, and the whole response."""
        items = _items(self._answer)
        if self._open:
            yield self._end(items[0])
        for index, item in enumerate(items):
            if item["type"] == "function_call":
                yield self._call(index, item)
        status = _status(self._answer)
        response = _response(self._answer, self._ask, status, items)
        yield self._event(f"response.{status}", response=response)

    def broken(self, refusal: Refusal) -> bytes:
        """`response.failed`. Clients know a closed list of codes here, so the sentence says it."""
        error = {"code": "server_error", "message": refusal.message}
        response = _response(self._answer, self._ask, "failed", [])
        return self._event("response.failed", response={**response, "error": error})

    def keep_alive(self) -> bytes:
        """A comment, which clients skip."""
        return b": waiting\n\n"

    def _begin(self) -> bytes:
        item = {**_message(self._answer, "in_progress"), "content": []}
        added = self._event("response.output_item.added", output_index=0, item=item)
        return added + self._text("response.content_part.added", part=_part(""))

    def _end(self, item: Json) -> bytes:
        text = self._answer.text
        done = self._text("response.output_text.done", text=text, logprobs=[])
        done += self._text("response.content_part.done", part=_part(text))
        return done + self._event("response.output_item.done", output_index=0, item=item)

    def _call(self, index: int, item: Json) -> bytes:
        where = {"item_id": item["id"], "output_index": index}
        started = {**item, "arguments": "", "status": "in_progress"}
        kind, arguments = "response.function_call_arguments", item["arguments"]
        return b"".join(
            (
                self._event("response.output_item.added", output_index=index, item=started),
                self._event(f"{kind}.delta", **where, delta=arguments),
                self._event(f"{kind}.done", **where, name=item["name"], arguments=arguments),
                self._event("response.output_item.done", output_index=index, item=item),
            )
        )

    def _text(self, kind: str, **fields: Any) -> bytes:
        where = {"item_id": f"msg_{self._answer.id}", "output_index": 0, "content_index": 0}
        return self._event(kind, **where, **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        self._number += 1
        return sse({"type": kind, "sequence_number": self._number, **fields}, kind)


def conversation(body: Json) -> tuple[Json, ...]:
    """Instructions and items of a body, in the shape of chat completions."""
    found: list[Json] = []
    instructions = body.get("instructions")
    if instructions:
        found.append({"role": "system", "content": instructions})
    given = body.get("input")
    if isinstance(given, str):
        return (*found, {"role": "user", "content": given})
    spoken: list[Json] = []
    for item in objects(body, "input"):
        _add(spoken, item)
    return (*found, *spoken)


def _function(tool: Json) -> Json | None:
    if tool.get("type") != "function":
        return None
    return function_tool(*(tool.get(key) for key in ("name", "description", "parameters")))


def _own(body: Json) -> Json:
    asked = {"instructions": True} if body.get("instructions") else {}
    return {"previous": _previous(body), "asked": asked}


def _previous(body: Json) -> str | None:
    given = body.get("previous_response_id")
    if given is None:
        return None
    if not isinstance(given, str) or not given.startswith(_PREFIX):
        raise bad_request("This is no id of a response.", param="previous_response_id")
    return given.removeprefix(_PREFIX)


def _add(messages: list[Json], item: Json) -> None:
    """One item: a message, a call (part of the assistant's message) or a call's result."""
    kind = item.get("type", "message")
    if kind == "message":
        parts = item.get("content")
        messages.append({"role": item.get("role"), "content": parts})
    elif kind == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments")}
        call = {"id": item.get("call_id"), "type": "function", "function": function}
        if not messages or messages[-1]["role"] != "assistant":
            messages.append({"role": "assistant", "content": None})
        messages[-1].setdefault("tool_calls", []).append(call)
    elif kind == "function_call_output":
        result = {"role": "tool", "tool_call_id": item.get("call_id")}
        messages.append({**result, "content": item.get("output")})
    elif kind != "reasoning":  # the policy's reasoning is text; what another model thought is not
        raise bad_request(f"Items of type '{kind}' are not supported here.", param="input")


def _items(answer: Answer) -> list[Json]:
    message = [_message(answer, "completed")] if answer.text else []
    calls = [
        {
            "type": "function_call",
            "id": call["id"].replace("call_", "fc_"),
            "call_id": call["id"],
            "name": call["function"]["name"],
            "arguments": call["function"]["arguments"],
            "status": "completed",
        }
        for call in answer.tool_calls
    ]
    return [*message, *calls]


def _message(answer: Answer, status: str) -> Json:
    return {
        "type": "message",
        "id": f"msg_{answer.id}",
        "status": status,
        "role": "assistant",
        "content": [_part(answer.text)],
    }


def _part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _status(answer: Answer) -> str:
    return "incomplete" if answer.finish_reason is FinishReason.LENGTH else "completed"


def _response(answer: Answer, ask: Ask, status: str, items: list[Json]) -> Json:
    cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
    sampling, body = ask.call.sampling, ask.body
    return {
        "id": _PREFIX + answer.id,
        "object": "response",
        "created_at": int(answer.created),
        "status": status,
        "error": None,
        "incomplete_details": cut,
        "instructions": body.get("instructions"),
        "max_output_tokens": sampling.max_tokens,
        "model": ask.model,
        "output": items,
        "parallel_tool_calls": True,
        "previous_response_id": body.get("previous_response_id"),
        "temperature": sampling.temperature,
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": body.get("tools") or [],
        "top_p": sampling.top_p,
        "metadata": body.get("metadata") or {},
        "usage": None if status in ("in_progress", "failed") else _usage(answer),
    }


def _usage(answer: Answer) -> Json:
    return {
        "input_tokens": answer.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": answer.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": answer.prompt_tokens + answer.output_tokens,
    }


_SPEAKER = Speaker(RESPONSES, conversation, _function, openai_choice, _own)
