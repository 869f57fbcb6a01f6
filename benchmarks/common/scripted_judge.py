"""A judge that does what a script says, behind the wire of an OpenAI-compatible server.

    def verdict(criterion_id: str, artefact: str, call_number: int) -> str | Fault:
        return reply("yes", quote=artefact[:20])

    with ScriptedJudge(verdict) as judge:
        ...  base_url = judge.url, any key, any model name

For tests and studies on loopback: the client under test, its prompts and its retries are the real
ones. `artefact` is the text of all evidence, in its order.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from tradewind.rewards.judges.prompt import read_back


@dataclass(frozen=True)
class Fault:
    """What goes wrong with a call instead of, or before, an answer."""

    status: int = 200
    """Of the HTTP answer."""
    body: str | None = None
    """Sent as it is instead of a chat completion."""
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    """Waited before anything is sent."""
    trickle_s: float = 0.0
    """Waited before each byte of the body."""
    drop: bool = False
    """The connection ends without an answer."""
    text: str = ""
    """The reply of the model, if the status is 200 and there is no body."""


Script = Callable[[str, str, int], "str | Fault"]


def reply(
    verdict: str, quote: str | None = None, confidence: float = 1.0, reason: str = "scripted"
) -> str:
    """A well-formed reply with at most one quote."""
    quotes = [] if quote is None else [quote]
    return json.dumps(
        {"quotes": quotes, "reason": reason, "verdict": verdict, "confidence": confidence}
    )


class ScriptedJudge:
    """The server; a context manager. `model` is what it reports as the model that answered.

    After its end it answers nobody, on open connections neither; another one may then take its
    `port` (0: the system chooses).
    """

    def __init__(
        self,
        script: Script,
        *,
        model: str = "scripted-1",
        latency_s: float = 0.0,
        keep: bool = True,
        port: int = 0,
    ) -> None:
        self.script, self.model, self.latency_s = script, model, latency_s
        """All three may be changed while it serves: drift in mid-run."""
        self.requests: list[dict[str, Any]] = []
        """Bodies of all calls, oldest first, with the headers under `headers`; empty without
        `keep`, for long studies."""
        self.calls = 0
        """How many requests came in so far."""
        self._keep = keep
        self._lock = threading.Lock()
        self.closing = threading.Event()
        """Ends every wait that a script asked for."""
        self._server = _Server(("127.0.0.1", port), _route(self))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        )

    def answer(self, body: dict[str, Any], headers: dict[str, str]) -> Fault:
        """What the script says about a request."""
        with self._lock:
            number, self.calls = self.calls, self.calls + 1
            if self._keep:
                self.requests.append({**body, "headers": headers})
        asked = read_back(body["messages"])
        said = self.script(asked.criterion_id, "\n\n".join(asked.shown.values()), number)
        fault = said if isinstance(said, Fault) else Fault(text=said)
        self.closing.wait(self.latency_s + fault.seconds)
        return fault

    def completion(self, body: dict[str, Any], text: str) -> str:
        """The chat completion with this reply; four characters count as a token."""
        prompt = sum(len(message["content"]) for message in body["messages"]) // 4
        return json.dumps(
            {
                "id": "chatcmpl-scripted",
                "object": "chat.completion",
                "created": 0,
                "model": self.model,
                "system_fingerprint": f"fp-{self.model}",
                "choices": [
                    {
                        "index": 0,
                        "finish_reason": "stop",
                        "message": {"role": "assistant", "content": text},
                    }
                ],
                "usage": {
                    "prompt_tokens": prompt,
                    "completion_tokens": len(text) // 4,
                    "total_tokens": prompt + len(text) // 4,
                },
            }
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """From here on nobody answers; repeating it does nothing."""
        if self.closing.is_set():
            return
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256


def _route(judge: ScriptedJudge) -> type[BaseHTTPRequestHandler]:
    class Route(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body leave in one piece

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            fault = judge.answer(body, {k.lower(): v for k, v in self.headers.items()})
            if fault.drop or judge.closing.is_set():
                self.close_connection = True
                return
            text = fault.body
            if text is None:
                failed = fault.status != 200
                error = json.dumps({"error": {"message": f"scripted {fault.status}"}})
                text = error if failed else judge.completion(body, fault.text)
            data = text.encode()
            self.send_response(fault.status)
            for name, value in {"Content-Type": "application/json", **fault.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if not fault.trickle_s:
                self.wfile.write(data)
                return
            for byte in data:
                if judge.closing.wait(fault.trickle_s):
                    return
                self.wfile.write(bytes([byte]))
                self.wfile.flush()

        def log_message(self, *_: Any) -> None:
            pass

    return Route
