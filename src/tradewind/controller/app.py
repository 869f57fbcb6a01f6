"""The controller's routes. Each reads the request, calls the controller, says what came of it."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tradewind.controller.controller import Controller
from tradewind.controller.keys import Keys, Unauthorized
from tradewind.controller.leasing import Asked
from tradewind.controller.tenants import tenant_routes
from tradewind.http.requests import Body, TooLarge, bearer, read_body
from tradewind.ledger import keys as ledger_keys
from tradewind.ledger.tenants import OverQuota, Tenant
from tradewind.types.errors import Conflict, LedgerAway, Stalled, UserError
from tradewind.types.ids import RolloutId
from tradewind.types.outcome import Outcome, OutcomeStatus
from tradewind.types.task import Split
from tradewind.types.weights import PoolReport

Endpoint = Callable[[Request], Awaitable[Response]]

_LOOPBACK = ("127.0.0.1", "::1", "localhost", "testclient")


class LeaseRequest(BaseModel):
    """Body of `POST /v1/leases`."""

    model_config = ConfigDict(extra="forbid")
    worker: str = Field(min_length=1, max_length=200)
    wait_s: float = Field(default=0.0, ge=0)
    request: str | None = Field(default=None, min_length=1, max_length=200)
    """The caller's id of this request: an answer that was lost on the way is given again."""


class CancelRequest(BaseModel):
    """Body of `POST /v1/rollouts/{id}/cancel`."""

    model_config = ConfigDict(extra="forbid")
    reason: str = Field(default="no reason given", max_length=2000)


class EvalRequest(BaseModel):
    """Body of `POST /v1/evals`."""

    model_config = ConfigDict(extra="forbid")
    name: str = Field(min_length=1, max_length=200)
    version: int = Field(ge=0)
    split: Split = Split.HELDOUT
    limit: int | None = Field(default=None, ge=1)


class TrainingRequest(BaseModel):
    """Body of `POST /v1/training`."""

    model_config = ConfigDict(extra="forbid")
    open: bool


class Routes:
    """One method per route; `application` binds them."""

    def __init__(self, controller: Controller, keys: Keys) -> None:
        self._controller, self._ledger, self._keys = controller, controller.ledger, keys

    async def lease(self, request: Request) -> Response:
        """`POST /v1/leases`: 200 with a lease, 204 if there is none within `wait_s`.

        429 with Retry-After when a tenant's quota is used up.
        """
        tenant = await self._tenant(request)
        body = await self._body(request, LeaseRequest)
        asked = Asked(body.worker, tenant, body.request)
        lease = await self._controller.lease(asked, body.wait_s, request.is_disconnected)
        return Response(status_code=204) if lease is None else _json(lease)

    async def heartbeat(self, request: Request) -> Response:
        """`POST /v1/rollouts/{id}/heartbeat`: 204, or 409 after the end."""
        rollout = await self._rollout(request)
        await self._controller.call(self._ledger.renew, rollout, time.time())
        return Response(status_code=204)

    async def outcome(self, request: Request) -> Response:
        """`POST /v1/rollouts/{id}/outcome`: 200 if first or identical, 409 if not or too late."""
        rollout = await self._rollout(request)
        outcome = await self._body(request, Outcome)
        counts_as = await self._controller.call(self._ledger.finish, rollout, outcome, time.time())
        return JSONResponse({"rollout_id": rollout, "status": counts_as.value})

    async def cancel(self, request: Request) -> Response:
        """`POST /v1/rollouts/{id}/cancel`: it ends as null; 200 if repeated, 409 after its end."""
        rollout = await self._rollout(request)
        asked = await self._body(request, CancelRequest)
        ended = Outcome(status=OutcomeStatus.INFRA_ERROR, detail=f"cancelled: {asked.reason}")
        counts_as = await self._controller.call(self._ledger.finish, rollout, ended, time.time())
        return JSONResponse({"rollout_id": rollout, "status": counts_as.value})

    async def rollout(self, request: Request) -> Response:
        """`GET /v1/rollouts/{id}`: what came of it; 404 if another tenant's key leased it."""
        tenant = await self._tenant(request)
        rollout = request.path_params["rollout"]
        name = None if tenant is None else tenant.name
        view = await self._controller.call(self._ledger.rollout_of_tenant, rollout, name)
        if view is None:
            return _error(404, f"no rollout {rollout} was leased with this worker key")
        return _json(view)

    async def pool_report(self, request: Request) -> Response:
        """`POST /v1/pools/report`: whose proofs are on record, and where it shall go."""
        self._keys.require(request, "pool")
        report = await self._body(request, PoolReport)
        try:
            acknowledged = await self._controller.report(report)
        except UserError as error:
            return JSONResponse({"error": str(error), "acknowledged": [], "stop": True}, 409)
        answer: dict[str, object] = {"acknowledged": acknowledged, "stop": False}
        if (order := await self._controller.call(self._ledger.pool_order)) is not None:
            answer["order"] = order.model_dump()
        return JSONResponse(answer)

    async def request_eval(self, request: Request) -> Response:
        """`POST /v1/evals`: 202; 409 if the name is taken by another evaluation."""
        self._keys.require(request, "admin")
        asked = await self._body(request, EvalRequest)
        await self._controller.call(
            self._ledger.request_eval, asked.name, asked.version, asked.split, asked.limit
        )
        self._controller.round_now()
        return JSONResponse({"name": asked.name}, 202)

    async def eval_result(self, request: Request) -> Response:
        """`GET /v1/evals/{name}`: what is known so far."""
        self._keys.require(request, "admin")
        name = request.path_params["name"]
        try:
            return _json(await self._controller.call(self._ledger.eval_result, name))
        except KeyError:
            return _error(404, f"nobody asked for an evaluation named {name!r}")

    async def training(self, request: Request) -> Response:
        """`POST /v1/training`: whether training groups are opened and leased."""
        self._keys.require(request, "admin")
        asked = await self._body(request, TrainingRequest)
        await self._controller.set_training(opened=asked.open)
        return JSONResponse({"open": asked.open})

    async def status(self, request: Request) -> Response:
        """`GET /v1/status`: no key needed on loopback."""
        if request.client is None or request.client.host not in _LOOPBACK:
            self._keys.require(request, "admin")
        return JSONResponse(await self._controller.status())

    async def _tenant(self, request: Request) -> Tenant | None:
        """Whose worker key the request bears; None for the run's own. Raises `Unauthorized`."""
        if self._keys.bears(request, "worker"):
            return None
        digest = ledger_keys.digest(bearer(request.headers))
        tenant = await self._controller.call(self._ledger.tenant_of_key, digest)
        if tenant is None:
            self._keys.require(request, "worker")
        return tenant

    async def _rollout(self, request: Request) -> RolloutId:
        """The rollout in the path, if the request bears its result key."""
        rollout: RolloutId = request.path_params["rollout"]
        digest = ledger_keys.digest(bearer(request.headers))
        owner = await self._controller.call(self._ledger.rollout_of_key, digest, "result")
        if owner != rollout:
            raise Unauthorized(f"this is not the result key of {rollout}; it came with the lease")
        return rollout

    async def _body(self, request: Request, model: type[Body]) -> Body:
        return await read_body(request, model, self._controller.config.max_body_bytes)


def application(controller: Controller, keys: Keys) -> Starlette:
    """The ASGI application; whoever serves it also runs `controller.run`."""
    routes = Routes(controller, keys)
    return Starlette(
        routes=[
            _route("POST", "/v1/leases", routes.lease),
            _route("POST", "/v1/rollouts/{rollout}/heartbeat", routes.heartbeat),
            _route("POST", "/v1/rollouts/{rollout}/outcome", routes.outcome),
            _route("POST", "/v1/rollouts/{rollout}/cancel", routes.cancel),
            _route("GET", "/v1/rollouts/{rollout}", routes.rollout),
            *tenant_routes(controller, keys),
            _route("POST", "/v1/pools/report", routes.pool_report),
            _route("POST", "/v1/evals", routes.request_eval),
            _route("GET", "/v1/evals/{name}", routes.eval_result),
            _route("POST", "/v1/training", routes.training),
            _route("GET", "/v1/status", routes.status),
        ],
        exception_handlers={
            Unauthorized: _answer(401),
            Conflict: _answer(409),
            OverQuota: _over_quota,
            UserError: _answer(400),
            TooLarge: _answer(413),
            ValidationError: _answer(422),
            Stalled: _answer(503),  # another writer hangs: come again
            LedgerAway: _answer(503),
            ClientDisconnect: _answer(400),  # nobody reads it; the caller will come again
        },
    )


def _route(method: str, path: str, endpoint: Endpoint) -> Route:
    return Route(path, endpoint, methods=[method])


def _answer(code: int) -> Callable[[Request, Exception], Response]:
    return lambda _request, error: _error(code, _sentence(error))


def _over_quota(_request: Request, error: Exception) -> Response:
    assert isinstance(error, OverQuota)
    answer = _error(429, str(error))
    answer.headers["retry-after"] = str(math.ceil(error.retry_after_s))
    return answer


def _sentence(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    faults = (f"{'.'.join(map(str, e['loc'])) or 'body'}: {e['msg']}" for e in error.errors())
    return f"the request body does not fit: {'; '.join(faults)}"


def _json(record: BaseModel) -> Response:
    return Response(record.model_dump_json(), media_type="application/json")


def _error(code: int, sentence: str) -> Response:
    return JSONResponse({"error": sentence}, code)
