"""The relay's routes. All read, none writes; only the status needs no key.

| route | answer |
|---|---|
| `GET /v1/objects/{name}` | the object's bytes |
| `GET /v1/names?prefix=latest/&after=...` | `{"names": [...]}` |
| `GET /v1/shortcuts/{start}/{end}` | `{"key": ...}`, the name of the merged delta, made if needed |
| `GET /v1/status` | what came in, what went out, where the mirror stands |

404: the bucket has no such object, or this relay makes no shortcuts. 502: the bucket cannot be
reached or holds something damaged. 503: busy for too long.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import wraps

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tradewind.http.requests import bears
from tradewind.relay.mirror import Mirror
from tradewind.relay.shelf import Shelf
from tradewind.relay.upstream import Upstream
from tradewind.types.errors import Stalled, UserError
from tradewind.weights.bucket import NotInBucket
from tradewind.weights.manifest import MAX_MANIFEST


class Relay:
    """Routes are plain functions: the framework runs each in a thread of its own."""

    def __init__(self, upstream: Upstream, shelf: Shelf, mirror: Mirror | None, key: str) -> None:
        self._upstream, self._shelf, self._mirror, self._key = upstream, shelf, mirror, key

    def app(self) -> Starlette:
        """The ASGI application."""
        return Starlette(
            routes=[
                Route("/v1/objects/{name:path}", self._guarded(self._object)),
                Route("/v1/names", self._guarded(self._names)),
                Route("/v1/shortcuts/{start:int}/{end:int}", self._guarded(self._shortcut)),
                Route("/v1/status", self._status),
            ]
        )

    def _object(self, request: Request) -> Response:
        data = self._upstream.get(request.path_params["name"], limit=MAX_MANIFEST)
        return Response(data, media_type="application/octet-stream")

    def _names(self, request: Request) -> Response:
        after = request.query_params.get("after") or None
        names = self._upstream.list(request.query_params.get("prefix", ""), after=after)
        return JSONResponse({"names": names})

    def _shortcut(self, request: Request) -> Response:
        if self._mirror is None:
            return _error(404, "this relay has no model and makes no shortcuts")
        start, end = request.path_params["start"], request.path_params["end"]
        return JSONResponse({"key": self._mirror.shortcut(start, end)})

    def _status(self, request: Request) -> Response:
        return JSONResponse(
            {
                "cache_bytes": self._shelf.size,
                "traffic": asdict(self._upstream.traffic),
                "trouble": self._upstream.trouble,
                "mirror": asdict(self._mirror.status) if self._mirror else None,
            }
        )

    def _guarded(self, route: Callable[[Request], Response]) -> Callable[[Request], Response]:
        """Asks for the key, and answers what goes wrong with a sentence."""

        @wraps(route)
        def answer(request: Request) -> Response:
            if not bears(request.headers, self._key):
                return _error(401, "the relay key is missing or wrong")
            try:
                return route(request)
            except NotInBucket as error:
                return _error(404, str(error))
            except Stalled as error:
                return _error(503, str(error))
            except UserError as error:
                return _error(502, str(error))

        return answer


def _error(status: int, sentence: str) -> Response:
    return JSONResponse({"error": sentence}, status_code=status)
