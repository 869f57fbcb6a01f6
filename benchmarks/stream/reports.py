"""Stands for the controller: takes the pools' reports and keeps their attestations."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tradewind.types import Attestation, PoolReport, PoolState


class Reports:
    """`attestations[pool][version]`, `proof_ms[pool][version]`; thread-safe."""

    def __init__(self) -> None:
        self.attestations: dict[str, dict[int, Attestation]] = {}
        self.proof_ms: dict[str, dict[int, float]] = {}
        self.last: dict[str, PoolReport] = {}
        self._news = threading.Condition()
        outer = self

        class Route(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                data = json.dumps(outer.take(PoolReport.model_validate_json(body))).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Route)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def take(self, report: PoolReport) -> dict[str, Any]:
        with self._news:
            known = self.attestations.setdefault(report.pool, {})
            known |= {proof.version: proof for proof in report.attestations}
            if report.proof_ms is not None:
                self.proof_ms.setdefault(report.pool, {})[report.version] = report.proof_ms
            self.last[report.pool] = report
            self._news.notify_all()
        return {"acknowledged": [proof.version for proof in report.attestations], "stop": False}

    def await_version(self, pools: list[str], version: int, limit_s: float) -> None:
        """Until all of `pools` have attested `version`; fails after `limit_s` seconds."""
        deadline = time.monotonic() + limit_s
        with self._news:
            while late := [p for p in pools if version not in self.attestations.get(p, {})]:
                details = {p: self.last[p].detail for p in late if p in self.last}
                left = deadline - time.monotonic()
                assert left > 0, f"version {version} is not active in {late}: {details}"
                self._news.wait(left)

    def serving(self, pool: str) -> str | None:
        """Where a pool that serves can be reached."""
        with self._news:
            report = self.last.get(pool)
        return report.url if report and report.state is PoolState.SERVING else None

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
