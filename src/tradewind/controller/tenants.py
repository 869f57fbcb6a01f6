"""The operator's routes for tenants: add, list, rotate, revoke. A key is shown once."""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tradewind.controller.controller import Controller
from tradewind.controller.keys import Keys
from tradewind.http.requests import read_body
from tradewind.ledger import keys as ledger_keys
from tradewind.ledger.tenants import Tenant


class TenantRoutes:
    """One method per route; all need the admin key."""

    def __init__(self, controller: Controller, keys: Keys) -> None:
        self._controller, self._ledger, self._keys = controller, controller.ledger, keys

    async def add(self, request: Request) -> Response:
        """`POST /v1/tenants`: 201 with its worker key; 409 if the name is taken."""
        self._keys.require(request, "admin")
        tenant = await read_body(request, Tenant, self._controller.config.max_body_bytes)
        key = ledger_keys.mint("worker")
        await self._controller.call(self._ledger.add_tenant, tenant, ledger_keys.digest(key))
        return JSONResponse({"tenant": tenant.model_dump(mode="json"), "key": key}, 201)

    async def list(self, request: Request) -> Response:
        """`GET /v1/tenants`: all, with what they hold."""
        self._keys.require(request, "admin")
        uses = await self._controller.call(self._ledger.tenants, time.time())
        return JSONResponse({"tenants": [use.model_dump(mode="json") for use in uses]})

    async def rotate(self, request: Request) -> Response:
        """`POST /v1/tenants/{name}/key`: a new key; the old one is dead."""
        self._keys.require(request, "admin")
        name, key = request.path_params["name"], ledger_keys.mint("worker")
        try:
            await self._controller.call(self._ledger.rotate_tenant, name, ledger_keys.digest(key))
        except KeyError:
            return _unknown(name)
        return JSONResponse({"name": name, "key": key})

    async def revoke(self, request: Request) -> Response:
        """`DELETE /v1/tenants/{name}`: no more leases for it; repeating it does nothing."""
        self._keys.require(request, "admin")
        name = request.path_params["name"]
        try:
            await self._controller.call(self._ledger.revoke_tenant, name)
        except KeyError:
            return _unknown(name)
        return Response(status_code=204)


def tenant_routes(controller: Controller, keys: Keys) -> list[Route]:
    """The routes, bound."""
    routes = TenantRoutes(controller, keys)
    return [
        Route("/v1/tenants", routes.add, methods=["POST"]),
        Route("/v1/tenants", routes.list, methods=["GET"]),
        Route("/v1/tenants/{name}/key", routes.rotate, methods=["POST"]),
        Route("/v1/tenants/{name}", routes.revoke, methods=["DELETE"]),
    ]


def _unknown(name: str) -> Response:
    return JSONResponse({"error": f"there is no tenant {name!r}"}, 404)
