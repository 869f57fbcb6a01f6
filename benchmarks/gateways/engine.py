"""A fake engine: the pool's token route, and the chat route of vLLM that the peers speak to.

Both answer at once: `TOKENS` ids with log-probabilities. With `hold` set the token route sends one
id and then keeps the stream open.
"""

from __future__ import annotations

import asyncio
import json

from gateways import wire

TOKENS = 32
TEXT = "the quick brown fox jumps over a "[: TOKENS - 1]


class FakeEngine:
    """`ids` are those of the answer, the end mark included."""

    def __init__(self, ids: list[int]) -> None:
        logprobs = [-0.5] * len(ids)
        chunk = {"ids": ids, "logprobs": logprobs, "version": 0, "finish_reason": "stop"}
        self._line = json.dumps({**chunk, "error": None}).encode() + b"\n"
        first = {"ids": ids[:1], "logprobs": [-0.5], "version": 0, "finish_reason": None}
        self._first = json.dumps({**first, "error": None}).encode() + b"\n"
        self._chat = json.dumps(_completion(ids, logprobs)).encode()
        self.hold = False
        self.held = 0
        self.url = ""

    async def start(self) -> None:
        """Listens on a free port."""
        server = await wire.serve(self._handle)
        self.url = "http://{}:{}".format(*server.sockets[0].getsockname()[:2])

    async def _handle(self, path: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        if path.endswith("/v1/generate"):
            wire.begin(writer, b"application/x-ndjson")
            if self.hold:
                wire.piece(writer, self._first)
                self.held += 1
                await asyncio.Event().wait()
            wire.piece(writer, self._line)
            wire.piece(writer, b"")
        elif "chat/completions" in path:
            wire.answer(writer, self._chat)
        else:
            wire.answer(writer, b"{}")


def _completion(ids: list[int], logprobs: list[float]) -> dict[str, object]:
    content = [
        {"token": "x", "logprob": logprob, "bytes": None, "top_logprobs": []}
        for logprob in logprobs
    ]
    message = {"role": "assistant", "content": TEXT}
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": "stop",
        "token_ids": ids,
        "logprobs": {"content": content},
    }
    usage = {"prompt_tokens": 300, "completion_tokens": len(ids), "total_tokens": 300 + len(ids)}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "policy"}
    return {**head, "choices": [choice], "usage": usage, "prompt_token_ids": list(range(300))}
