"""Push mode, the customer's side: a small ASGI app that plays rollouts for whom it is signed.

    from tradewind.envs.push import push_app
    app = push_app(rollout, keys={"k1": os.environ["TRADEWIND_PUSH_SECRET"]})

    POST /rollouts              201 Progress; 200 if repeated, 409 with another body, 429 if full
    GET  /rollouts/{id}         200 Progress; 404; whoever asks is still there
    POST /rollouts/{id}/cancel  200 Progress; 404; repeating it does nothing
    GET  /healthz               200, unsigned

Serve it with TLS, or mount it: `Mount("/agents", app)` makes the URL https://your.host/agents.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tradewind.envs.host import Full, RolloutHost
from tradewind.envs.protocol import Env
from tradewind.envs.secrets import Secrets
from tradewind.envs.shelf import Shelf
from tradewind.envs.signature import BadSignature, SignatureCheck
from tradewind.http.requests import TooLarge, read_bytes
from tradewind.types.assignment import PROTOCOL, Assignment, Fault, Progress
from tradewind.types.errors import Conflict

MAX_BODY = 4_000_000
_FULL_RETRY_S = 5


class Routes:
    """One method per route."""

    def __init__(self, host: RolloutHost, check: SignatureCheck, max_body: int) -> None:
        self._host, self._check, self._max_body = host, check, max_body

    async def create(self, request: Request) -> Response:
        """`POST /rollouts`."""
        body = await self._signed(request, "/rollouts")
        progress, new = self._host.create(Assignment.model_validate_json(body))
        return _answer(progress, 201 if new else 200)

    async def get(self, request: Request) -> Response:
        """`GET /rollouts/{id}`."""
        rollout = request.path_params["rollout"]
        await self._signed(request, f"/rollouts/{rollout}")
        return _found(self._host.get(rollout))

    async def cancel(self, request: Request) -> Response:
        """`POST /rollouts/{id}/cancel`."""
        rollout = request.path_params["rollout"]
        await self._signed(request, f"/rollouts/{rollout}/cancel")
        return _found(self._host.cancel(rollout))

    async def health(self, _request: Request) -> Response:
        """`GET /healthz`."""
        return JSONResponse({"protocol": PROTOCOL, "running": self._host.running})

    async def _signed(self, request: Request, path: str) -> bytes:
        body = await read_bytes(request, self._max_body)
        self._check.check(request.method, path, request.headers, body)
        return body


def push_app(
    env: Env,
    keys: Mapping[str, str],
    *,
    max_running: int = 64,
    max_kept: int = 10_000,
    max_body: int = MAX_BODY,
    state: Path | None = None,
) -> Starlette:
    """The ASGI app.

    Args:
        env: the rollout function.
        keys: shared secrets by id, 16 characters or more each; two during a rotation.
        max_running: rollouts at the same time; one more is 429.
        max_kept: rollouts that are over and still answered; the oldest are forgotten (404).
        max_body: bytes of a request.
        state: SQLite file that outlives the process, of one server alone: nonces, and what became
            of rollouts. None is memory: after a restart every rollout is unknown (404).

    Raises `UserError` if the file cannot be opened.
    """
    shelf = Shelf(state)
    host = RolloutHost(env, Secrets.from_environment(os.environ), max_running, max_kept, shelf)
    routes = Routes(host, SignatureCheck(keys, shelf=shelf), max_body)

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        yield
        await host.close()

    return Starlette(
        routes=[
            Route("/rollouts", routes.create, methods=["POST"]),
            Route("/rollouts/{rollout}", routes.get, methods=["GET"]),
            Route("/rollouts/{rollout}/cancel", routes.cancel, methods=["POST"]),
            Route("/healthz", routes.health, methods=["GET"]),
        ],
        exception_handlers={
            BadSignature: _refused,
            Conflict: _refused,
            Full: _refused,
            TooLarge: _refused,
            ValidationError: _refused,
        },
        lifespan=lifespan,
    )


def _refused(_request: Request, error: Exception) -> Response:
    headers = {}
    sentence = str(error)
    if isinstance(error, BadSignature):
        status, code = 401, error.code
    elif isinstance(error, Conflict):
        status, code = 409, "conflict"
    elif isinstance(error, Full):
        status, code = 429, "full"
        headers["retry-after"] = str(_FULL_RETRY_S)
    elif isinstance(error, TooLarge):
        status, code = 413, "too_large"
    else:
        assert isinstance(error, ValidationError)
        status, code = 422, "schema"
        faults = (f"{'.'.join(map(str, e['loc'])) or 'body'}: {e['msg']}" for e in error.errors())
        sentence = f"the request body does not fit: {'; '.join(faults)}"
    return JSONResponse(Fault(error=sentence, code=code).model_dump(), status, headers)


def _found(progress: Progress | None) -> Response:
    if progress is None:
        return JSONResponse(Fault(error="no such rollout here", code="unknown").model_dump(), 404)
    return _answer(progress, 200)


def _answer(progress: Progress, status: int) -> Response:
    return Response(progress.model_dump_json(), status, media_type="application/json")
