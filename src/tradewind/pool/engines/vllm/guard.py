"""A guard before every route of vLLM, in vLLM's server process.

vLLM's own `--api-key` covers `/v1`, `/v2`, `/inference` and `/cohere`. The routes by which weights
are changed lie outside of them, and one of them calls any method of the worker.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

KEY = "TRADEWIND_VLLM_KEY"
"""Environment variable with the key of this start."""

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Any, Send], Awaitable[None]]


class Guard:
    """ASGI middleware, named in `--middleware`: without the key every route answers 401."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._expected = f"Bearer {os.environ[KEY]}".encode()

    async def __call__(self, scope: Scope, receive: Any, send: Send) -> None:
        """Lets through what carries the key, and the server's own start and end."""
        if scope["type"] == "lifespan" or self._knows(scope):
            await self._app(scope, receive, send)
        else:
            headers = [(b"content-type", b"text/plain")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": b"this server is not for you\n"})

    def _knows(self, scope: Scope) -> bool:
        given = dict(scope.get("headers", ())).get(b"authorization", b"")
        return hmac.compare_digest(given, self._expected)
