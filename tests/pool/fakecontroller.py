"""A controller that only listens to pools."""

from __future__ import annotations

import json
import queue
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tradewind.types import PoolReport, PoolState

KEY = "pool-key"
WAIT_S = 110


class FakeController:
    """Keeps every report; answers with what `acknowledge`, `stop` and `status` say."""

    def __init__(self) -> None:
        self.reports: queue.Queue[PoolReport] = queue.Queue()
        self.acknowledge = True
        self.stop = False
        self.order: dict[str, int | None] | None = None
        self.status = 200
        outer = self

        class Route(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                allowed = self.headers["Authorization"] == f"Bearer {KEY}"
                assert self.path == "/v1/pools/report"
                report = PoolReport.model_validate_json(body)
                versions = [proof.version for proof in report.attestations]
                answer = {
                    "acknowledged": versions if outer.acknowledge else [],
                    "stop": outer.stop,
                    "order": outer.order,
                }
                data = json.dumps(answer).encode()
                self.send_response(outer.status if allowed else 401)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
                outer.reports.put(report)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Route)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        )
        self._thread.start()

    def wait_for(self, state: PoolState, version: int) -> PoolReport:
        while True:
            report = self.reports.get(timeout=WAIT_S)
            if (report.state, report.version) == (state, version):
                return report

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
