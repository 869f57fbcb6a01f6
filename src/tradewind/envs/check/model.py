"""A model endpoint that does what a check says: answer, hold, refuse. Each key is a session."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

MODEL = "policy-under-check"
_LONGEST_HOLD_S = 120.0


@dataclass(frozen=True)
class Refusal:
    """What a call gets instead of an answer."""

    status: int
    code: str
    message: str
    retry_after_s: int | None = None


OVERFLOW = Refusal(
    400,
    "context_length_exceeded",
    "This model's maximum context length is 16 tokens. Please reduce the length of the messages.",
)
ENDED = Refusal(409, "rollout_ended", "This session is over.")
DOWN = Refusal(503, "answer_lost", "The answer could not be finished.")
BUSY = Refusal(429, "no_pool", "No pool can serve now.", retry_after_s=1)


@dataclass
class Session:
    """One rollout's key and what it was used for."""

    refusal: Callable[[int], Refusal | None] = lambda _call: None
    """What the call of this number (from 1) is refused with; None: it is answered."""
    held: bool = False
    """Whether calls wait for `release`."""
    key: str = field(default_factory=lambda: f"tw-model-{secrets.token_urlsafe(16)}")
    calls: int = 0
    models: set[str] = field(default_factory=set)
    """The model names that were asked for."""
    first_at: float | None = None
    """When the first call came, in monotonic seconds."""
    _gate: asyncio.Event = field(default_factory=asyncio.Event)
    _called: asyncio.Event = field(default_factory=asyncio.Event)

    def release(self) -> None:
        """Answer what is held, and hold no more."""
        self.held = False
        self._gate.set()

    async def called(self, seconds: float) -> bool:
        """Whether a call comes within so many seconds."""
        try:
            await asyncio.wait_for(self._called.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def answer(self, model: str) -> Refusal | None:
        """Note a call and wait if calls are held."""
        self.calls += 1
        number = self.calls
        self.first_at = self.first_at or time.monotonic()
        self.models.add(model)
        self._called.set()
        if self.held:
            await asyncio.wait_for(self._gate.wait(), _LONGEST_HOLD_S)
        return self.refusal(number)


class CheckModel:
    """OpenAI chat completions and Anthropic messages, streamed or not."""

    def __init__(self, reply: str) -> None:
        """`reply` is what it says to everything."""
        self._reply = reply
        self._sessions: dict[str, Session] = {}
        self.strangers = 0
        """Calls with a key that was never given out."""

    def open(self, **behaviour: Any) -> Session:
        """A new session."""
        session = Session(**behaviour)
        self._sessions[session.key] = session
        return session

    @property
    def keys(self) -> list[str]:
        """All keys that were given out."""
        return list(self._sessions)

    def app(self) -> Starlette:
        """The ASGI app; its base URL is where it is served, plus `/v1`."""
        return Starlette(
            routes=[
                Route("/v1/models", self._models, methods=["GET"]),
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/v1/messages", self._messages, methods=["POST"]),
            ]
        )

    async def _models(self, _request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    async def _chat(self, request: Request) -> Response:
        body = await request.json()
        refused = await self._refused(request, body)
        if refused is not None:
            return refused
        message = {"role": "assistant", "content": self._reply}
        whole = {"id": "c", "created": 0, "model": body.get("model", MODEL)}
        if body.get("stream"):
            pieces = [
                {"index": 0, "delta": message, "finish_reason": None},
                {"index": 0, "delta": {}, "finish_reason": "stop"},
            ]
            chunks = ({**whole, "object": "chat.completion.chunk", "choices": [p]} for p in pieces)
            return StreamingResponse(_events(chunks), media_type="text/event-stream")
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        return JSONResponse(
            {**whole, "object": "chat.completion", "choices": [choice], "usage": usage}
        )

    async def _messages(self, request: Request) -> Response:
        body = await request.json()
        refused = await self._refused(request, body)
        if refused is not None:
            return refused
        return JSONResponse(
            {
                "id": "m",
                "type": "message",
                "role": "assistant",
                "model": body.get("model", MODEL),
                "content": [{"type": "text", "text": self._reply}],
                "stop_reason": "end_turn",
                "stop_sequence": None,
                "usage": {"input_tokens": 1, "output_tokens": 1},
            }
        )

    async def _refused(self, request: Request, body: dict[str, Any]) -> Response | None:
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
        session = self._sessions.get(bearer or request.headers.get("x-api-key", ""))
        if session is None:
            self.strangers += 1
            return _error(Refusal(401, "invalid_api_key", "This API key is not known here."))
        refusal = await session.answer(str(body.get("model")))
        return None if refusal is None else _error(refusal)


def _error(refusal: Refusal) -> Response:
    error = {"message": refusal.message, "type": "invalid_request_error", "code": refusal.code}
    headers = {} if refusal.retry_after_s is None else {"retry-after": str(refusal.retry_after_s)}
    return JSONResponse({"error": error}, refusal.status, headers)


async def _events(chunks: Any) -> AsyncIterator[str]:
    for chunk in chunks:
        yield f"data: {json.dumps(chunk)}\n\n"
    yield "data: [DONE]\n\n"
