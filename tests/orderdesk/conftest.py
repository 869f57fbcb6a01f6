"""A built order desk, and a stand-in for an OpenAI-compatible endpoint on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from orderdesk.build import build


@dataclass
class Desk:
    folder: Path
    counts: dict[str, int]

    @property
    def database(self) -> Path:
        return self.folder / "orderdesk.sqlite"

    def rows(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]


@pytest.fixture(scope="session")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    folder = tmp_path_factory.mktemp("orderdesk")
    return Desk(folder, build(folder, seed=7))


@dataclass
class Endpoint:
    """Answers each request with the next of `replies` (the last for ever) and keeps them all."""

    replies: list[str] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    status: int = 200
    base_url: str = ""
    api_key: str = "key"
    model: str = "policy"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    state = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            state.requests.append(body)
            text = state.replies.pop(0) if len(state.replies) > 1 else state.replies[0]
            streamed = bool(body.get("stream"))
            payload = _streamed(text) if streamed else json.dumps(_completion(text)).encode()
            self.send_response(state.status)
            kind = "text/event-stream" if streamed else "application/json"
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.base_url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


def _completion(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return {
        "id": "c-1",
        "object": "chat.completion",
        "created": 0,
        "model": "policy",
        "choices": [choice],
    }


def _streamed(text: str) -> bytes:
    events = [
        {
            "id": "c-1",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": "policy",
            "choices": [{"index": 0, "finish_reason": None, "delta": {"content": piece}}],
        }
        for piece in text.split(" ")
    ]
    return "".join(f"data: {json.dumps(e)}\n\n" for e in events).encode() + b"data: [DONE]\n\n"
