"""OpenAI chat completions: requests, answers, streams and errors, to and from the internal call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

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
from tradewind.gateway.parameters import CHAT
from tradewind.gateway.refusal import Refusal
from tradewind.types import FinishReason, Json

_FINISH = {FinishReason.STOP: "stop", FinishReason.LENGTH: "length"}
_ERROR_TYPES = {401: "authentication_error", 409: "conflict_error", 429: "rate_limit_error"}


class Chat:
    """`POST /v1/chat/completions`."""

    policy = CHAT

    def parse(self, raw: bytes, headers: Mapping[str, str], asker: Asker) -> Ask:
        """Messages and tools are in the internal shape already."""
        return read_ask(_SPEAKER, raw, headers, asker)

    def whole(self, reply: Reply, ask: Ask) -> Json:
        """A `chat.completion`."""
        choices = [
            {
                "index": number,
                "message": _message(answer),
                "logprobs": None,
                "finish_reason": _finish(answer),
            }
            for number, answer in enumerate(reply.answers)
        ]
        head = _head(reply, ask.model, "chat.completion")
        return {**head, "choices": choices, "usage": _usage(reply)}

    def stream(self, reply: Reply, ask: Ask) -> ChatStream:
        """`chat.completion.chunk` events."""
        return ChatStream(reply, ask)

    def error(self, refusal: Refusal) -> Json:
        """OpenAI's error object."""
        return openai_error(refusal)


class ChatStream:
    """The events of one streamed reply, in order."""

    def __init__(self, reply: Reply, ask: Ask) -> None:
        self._reply, self._model = reply, ask.model
        options = ask.body.get("stream_options")
        self._usage = isinstance(options, dict) and options.get("include_usage") is True

    def first(self) -> bytes:
        """The role, of each answer."""
        role = {"role": "assistant", "content": "", "refusal": None}
        return b"".join(self._event(number, role) for number in range(len(self._reply.answers)))

    def piece(self, number: int, text: str) -> bytes:
        """Some text."""
        return self._event(number, {"content": text})

    def last(self) -> Iterable[bytes]:
        """Tool calls, why each answer ended, the usage if it was asked for, and the end mark."""
        for number, answer in enumerate(self._reply.answers):
            for position, call in enumerate(answer.tool_calls):
                yield self._event(number, {"tool_calls": [{"index": position, **call}]})
            yield self._event(number, {}, _finish(answer))
        if self._usage:
            yield sse({**self._head(), "choices": [], "usage": _usage(self._reply)})
        yield b"data: [DONE]\n\n"

    def broken(self, refusal: Refusal) -> bytes:
        """In the middle of a stream there is no status left to send."""
        return sse(openai_error(refusal))

    def keep_alive(self) -> bytes:
        """A comment, which clients skip."""
        return b": waiting\n\n"

    def _event(self, number: int, delta: Json, finish: str | None = None) -> bytes:
        choice = {"index": number, "delta": delta, "logprobs": None, "finish_reason": finish}
        usage = {"usage": None} if self._usage else {}
        return sse({**self._head(), "choices": [choice], **usage})

    def _head(self) -> Json:
        return _head(self._reply, self._model, "chat.completion.chunk")


def openai_choice(given: object, tools: Sequence[Json]) -> Json:
    """`tool_choice` of chat completions, and of responses, whose name lies a level higher."""
    if not isinstance(given, dict):
        return chosen("auto" if given is None else given, None, tools)
    named = given.get("function", given)
    known = given.get("type") == "function" and isinstance(named, dict)
    return chosen("named" if known else None, named.get("name") if known else None, tools)


def openai_error(refusal: Refusal) -> Json:
    """OpenAI's error object, in chat completions and responses."""
    kind = "server_error" if refusal.status >= 500 else "invalid_request_error"
    return {
        "error": {
            "message": refusal.message,
            "type": _ERROR_TYPES.get(refusal.status, kind),
            "param": refusal.param,
            "code": refusal.code,
        }
    }


def models(config: GatewayConfig) -> Json:
    """The list of the one model."""
    return {"object": "list", "data": [model(config)]}


def model(config: GatewayConfig) -> Json:
    """The one model."""
    return {"id": config.model, "object": "model", "created": 0, "owned_by": "tradewind"}


def fingerprint(answer: Answer) -> str | None:
    """The weight version is what makes two answers comparable."""
    return None if answer.version is None else f"v{answer.version}"


def _function(tool: Json) -> Json | None:
    function = tool.get("function")
    if tool.get("type", "function") != "function" or not isinstance(function, dict):
        return None
    return function_tool(*(function.get(key) for key in ("name", "description", "parameters")))


def _message(answer: Answer) -> Json:
    content = answer.text
    if not answer.tool_calls:
        return {"role": "assistant", "content": content, "refusal": None}
    calls = list(answer.tool_calls)
    return {"role": "assistant", "content": content or None, "refusal": None, "tool_calls": calls}


def _finish(answer: Answer) -> str:
    assert answer.finish_reason is not None
    if answer.tool_calls and answer.finish_reason is FinishReason.STOP:
        return "tool_calls"
    return _FINISH[answer.finish_reason]


def _head(reply: Reply, model: str, kind: str) -> Json:
    return {
        "id": f"chatcmpl-{reply.first.id}",
        "object": kind,
        "created": int(reply.first.created),
        "model": model,
        "system_fingerprint": fingerprint(reply.first),
    }


def _usage(reply: Reply) -> Json:
    prompt, output = reply.first.prompt_tokens, reply.output_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
    }


_SPEAKER = Speaker(CHAT, lambda body: tuple(objects(body, "messages")), _function, openai_choice)
