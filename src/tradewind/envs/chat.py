"""The lightest way to ask the policy: chat completions over HTTP, no client library needed."""

from __future__ import annotations

import functools
import ssl
from collections.abc import Sequence
from typing import Any

import httpx

from tradewind.envs.protocol import Policy
from tradewind.http.connected import Connected
from tradewind.types.record import Record

_TIMEOUT_S = 600.0


class Message(Record):
    """Example: `Message(role="user", content="How many?")`."""

    role: str
    content: str


class Reply(Record):
    """What the policy said."""

    text: str
    tokens: int
    """Of prompt and answer together; the next prompt has at least so many."""
    finish_reason: str


class Chat(Connected):
    """Asks one policy. Use as an async context manager."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._http = httpx.AsyncClient(
            verify=_tls(),
            timeout=_TIMEOUT_S,
            headers={"authorization": f"Bearer {policy.api_key}"},
        )

    async def ask(self, messages: Sequence[Message], max_tokens: int | None = None) -> Reply:
        """The next message of the assistant.

        Raises `httpx.HTTPStatusError` if the endpoint refuses, `httpx.TransportError` if there is
        no answer; `play` knows what each counts as.
        """
        body: dict[str, Any] = {
            "model": self._policy.model,
            "messages": [message.model_dump() for message in messages],
        }
        if max_tokens is not None:
            body["max_tokens"] = max_tokens
        answer = await self._http.post(f"{self._policy.base_url}/chat/completions", json=body)
        answer.raise_for_status()
        said = answer.json()
        choice, usage = said["choices"][0], said.get("usage") or {}
        return Reply(
            text=choice["message"].get("content") or "",
            tokens=usage.get("total_tokens", 0),
            finish_reason=choice.get("finish_reason") or "stop",
        )


@functools.cache
def _tls() -> ssl.SSLContext:
    """One for all: loading the certificates takes longer than a call."""
    return httpx.create_ssl_context()
