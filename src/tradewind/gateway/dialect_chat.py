"""OpenAI chat completions: requests, answers, streams and errors, to and from the internal call."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tradewind.gateway.answer import Answer
from tradewind.gateway.call import Call
from tradewind.gateway.config import GatewayConfig
from tradewind.gateway.parameters import apply
from tradewind.gateway.refusal import Refusal, bad_request
from tradewind.types import FinishReason, Json, Purpose

_FINISH = {FinishReason.STOP: "stop", FinishReason.LENGTH: "length"}
_ERROR_TYPES = {401: "authentication_error", 409: "conflict_error", 429: "rate_limit_error"}


def parse(
    raw: bytes,
    headers: Mapping[str, str],
    purpose: Purpose | None,
    config: GatewayConfig,
    count: Callable[[str], None],
) -> tuple[Call, Json]:
    """The internal call, and the body for what concerns the answer's shape only.

    `purpose` None is a user; `count` hears the names of overridden parameters. Raises `Refusal`.
    """
    try:
        body = json.loads(raw)
    except ValueError as error:
        raise bad_request(f"The body is not JSON: {error}.") from error
    if not isinstance(body, dict):
        raise bad_request("The body must be a JSON object.")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise bad_request("'messages' must be a list of at least one message.", param="messages")
    if not all(isinstance(message, dict) for message in messages):
        raise bad_request("Each of 'messages' must be an object.", param="messages")
    call = Call(
        messages=tuple(messages),
        sampling=apply(body, purpose, config, count),
        digest=hashlib.sha256(raw).hexdigest(),
        retry=_retries(headers) > 0,
        idempotency_key=headers.get("idempotency-key"),
    )
    return call, body


def streamed(body: Json) -> bool:
    """Whether the answer is asked for as server-sent events."""
    return body.get("stream") is True


def completion(answer: Answer, model: str) -> Json:
    """A whole answer."""
    assert answer.finish_reason is not None
    return {
        "id": f"chatcmpl-{answer.id}",
        "object": "chat.completion",
        "created": int(answer.created),
        "model": model,
        "system_fingerprint": _fingerprint(answer),
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": answer.text, "refusal": None},
                "logprobs": None,
                "finish_reason": _FINISH[answer.finish_reason],
            }
        ],
        "usage": _usage(answer),
    }


class Stream:
    """The events of one streamed answer, in order."""

    def __init__(self, answer: Answer, model: str, body: Json) -> None:
        self._answer, self._model = answer, model
        options = body.get("stream_options")
        self._usage = isinstance(options, dict) and options.get("include_usage") is True

    def first(self) -> bytes:
        """The role."""
        return self._event({"role": "assistant", "content": "", "refusal": None})

    def piece(self, text: str) -> bytes:
        """Some text."""
        return self._event({"content": text})

    def last(self) -> Iterable[bytes]:
        """Why it ended, the usage if it was asked for, and the end mark."""
        assert self._answer.finish_reason is not None
        yield self._event({}, _FINISH[self._answer.finish_reason])
        if self._usage:
            yield _sse({**self._head(), "choices": [], "usage": _usage(self._answer)})
        yield b"data: [DONE]\n\n"

    def broken(self, refusal: Refusal) -> bytes:
        """In the middle of a stream there is no status left to send."""
        return _sse(error(refusal))

    def keep_alive(self) -> bytes:
        """A comment, which clients skip."""
        return b": waiting\n\n"

    def _event(self, delta: Json, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        usage = {"usage": None} if self._usage else {}
        return _sse({**self._head(), "choices": [choice], **usage})

    def _head(self) -> Json:
        return {
            "id": f"chatcmpl-{self._answer.id}",
            "object": "chat.completion.chunk",
            "created": int(self._answer.created),
            "model": self._model,
            "system_fingerprint": _fingerprint(self._answer),
        }


def error(refusal: Refusal) -> Json:
    """OpenAI's error object."""
    kind = "server_error" if refusal.status >= 500 else "invalid_request_error"
    return {
        "error": {
            "message": refusal.message,
            "type": _ERROR_TYPES.get(refusal.status, kind),
            "param": refusal.param,
            "code": refusal.code,
        }
    }


def error_headers(refusal: Refusal) -> dict[str, str]:
    """When to come back, and for the SDK, which retries 409 by itself, that it need not."""
    if refusal.retry_after_s is not None:
        seconds = max(1, round(refusal.retry_after_s))
        milliseconds = str(int(refusal.retry_after_s * 1000))
        return {"retry-after": str(seconds), "retry-after-ms": milliseconds}
    return {"x-should-retry": "false"} if refusal.status < 500 else {}


def models(config: GatewayConfig) -> Json:
    """The list of the one model."""
    model = {"id": config.model, "object": "model", "created": 0, "owned_by": "tradewind"}
    return {"object": "list", "data": [model]}


def _retries(headers: Mapping[str, str]) -> int:
    mark = headers.get("x-stainless-retry-count", "0")
    return int(mark) if mark.isdigit() else 0


def _usage(answer: Answer) -> Json:
    return {
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.output_tokens,
        "total_tokens": answer.prompt_tokens + answer.output_tokens,
    }


def _fingerprint(answer: Answer) -> str | None:
    """The weight version is what makes two answers comparable."""
    return None if answer.version is None else f"v{answer.version}"


def _sse(data: Any) -> bytes:
    return (
        b"data: " + json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
    )
