"""A small S3 on loopback: create-only put, get, head, list and delete, over real HTTP."""

from __future__ import annotations

import hashlib
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape


class SmallS3:
    """Path-style; `objects` maps `/bucket/key` to bytes. Signatures are not checked.

    `ails`: "busy" answers 503, "cut" ends every body half way, "slow" stops there and holds the
    line; None is well. `refused` counts the requests that were not answered well.
    """

    def __init__(self) -> None:  # noqa: C901  the routes of one server
        self.objects: dict[str, bytes] = {}
        self.ails: str | None = None
        self.refused = 0
        self._well = threading.Event()
        lock = threading.Lock()
        outer = self

        class Route(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_PUT(self) -> None:
                data = self.rfile.read(int(self.headers["Content-Length"]))
                with lock:
                    taken = self._path() in outer.objects
                    if taken and self.headers["If-None-Match"] == "*":
                        return self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
                    outer.objects[self._path()] = data
                self._answer(200, b"", data)

            def do_GET(self) -> None:
                query = parse_qs(urlsplit(self.path).query)
                if "list-type" in query:
                    return self._answer(200, outer.listing(self._path(), query).encode())
                found = outer.objects.get(self._path())
                if found is None:
                    return self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
                self._answer(200, found, found)

            do_HEAD = do_GET

            def do_POST(self) -> None:  # ?delete
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                with lock:
                    self._answer(200, outer.deleted(self._path(), body).encode())

            def _path(self) -> str:
                return unquote(urlsplit(self.path).path)

            def _answer(self, status: int, body: bytes, tagged: bytes = b"") -> None:
                outer.refused += outer.ails is not None
                if outer.ails == "busy":
                    status, body = 503, b"<Error><Code>SlowDown</Code></Error>"
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("ETag", f'"{hashlib.md5(tagged).hexdigest()}"')
                self.send_header("Last-Modified", "Mon, 30 Nov 2026 00:00:00 GMT")
                self.end_headers()
                if self.command == "HEAD":
                    return
                if outer.ails in ("cut", "slow") and status == 200:
                    self.wfile.write(body[: len(body) // 2])
                    self.wfile.flush()
                    if outer.ails == "slow":
                        outer._well.wait(60)
                    self.close_connection = True
                    return
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Route)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        )
        self._thread.start()

    def listing(self, bucket: str, query: dict[str, list[str]]) -> str:
        prefix, after = query.get("prefix", [""])[0], query.get("start-after", [""])[0]
        rows = []
        for path, data in sorted(self.objects.items()):
            key = path.removeprefix(bucket.rstrip("/") + "/")
            if key.startswith(prefix) and key > after:
                tag = hashlib.md5(data).hexdigest()
                rows.append(
                    f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size>"
                    f'<ETag>"{tag}"</ETag><LastModified>2026-11-30T00:00:00.000Z</LastModified>'
                    f"</Contents>"
                )
        return (
            f"<ListBucketResult><IsTruncated>false</IsTruncated>{''.join(rows)}</ListBucketResult>"
        )

    def deleted(self, bucket: str, body: str) -> str:
        keys = [unescape(key) for key in re.findall("<Key>(.*?)</Key>", body)]
        for key in keys:
            self.objects.pop(f"{bucket.rstrip('/')}/{key}", None)
        rows = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
        return f"<DeleteResult>{rows}</DeleteResult>"

    def close(self) -> None:
        self._well.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
