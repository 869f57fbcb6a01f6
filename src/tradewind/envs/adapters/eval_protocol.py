"""Remote rollout servers of eval-protocol: one `POST /init` starts a rollout, its end comes by log.

    worker ── POST {server}/init: messages, tools, model, model_base_url, metadata, api_key ──►
       ▲                                                                     their server, agent
       └──────── POST {here}/logs: {status: {code}, tags: ["rollout_id:..."]} ◄──┘

The server is unchanged; only its environment variable `FW_TRACING_GATEWAY_BASE_URL` names this
adapter's address, where the package's own log handler then posts. The api key of an `/init` is the
rollout's model key: it dies with the rollout, whatever log it ends up in.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tradewind.envs.protocol import Policy
from tradewind.http.listening import listen_at, quiet
from tradewind.types.outcome import Outcome, OutcomeStatus
from tradewind.types.record import Json

log = logging.getLogger("worker")

FINISHED, RUNNING = 100, 101
"""The package's own codes besides those of gRPC."""
_OK = 0
_INVALID, _OUT_OF_RANGE = 3, 11
_INIT_S = 600.0
GRACE_S = 1


class EvalProtocol:
    """A rollout function that has a remote rollout server play; tasks hold `messages`."""

    def __init__(self, server: str, listen: str = "127.0.0.1:9300") -> None:
        """`server` has `/init`; `listen` is where its log handler shall post."""
        self._server, self._listen = server.rstrip("/"), listen
        self._ended: dict[str, asyncio.Future[Json]] = {}
        self._sink: tuple[uvicorn.Server, asyncio.Task[None]] | None = None

    async def rollout(self, task: Json, policy: Policy) -> Outcome:
        """Start a rollout there and wait for its final status; the deadline is the caller's."""
        await self.listen()
        rollout = uuid.uuid4().hex
        self._ended[rollout] = asyncio.get_running_loop().create_future()
        try:
            async with httpx.AsyncClient(timeout=_INIT_S) as http:
                answer = await http.post(
                    f"{self._server}/init", json=init_request(task, policy, rollout)
                )
            if answer.status_code >= 400:
                detail = f"/init answered {answer.status_code}: {answer.text[:300]}"
                return Outcome(status=OutcomeStatus.ENV_ERROR, detail=detail)
            return outcome_of(await self._ended[rollout])
        finally:
            del self._ended[rollout]

    async def listen(self) -> str:
        """Listen for logs if not yet; the URL for FW_TRACING_GATEWAY_BASE_URL."""
        if self._sink is None:
            app = Starlette(
                routes=[Route(path, self._log, methods=["POST"]) for path in ("/logs", "/v1/logs")]
            )
            listener = listen_at(
                self._listen, what="the eval-protocol adapter", fix="give HOST:PORT of this machine"
            )
            self._listen = "{}:{}".format(*listener.getsockname()[:2])
            server = uvicorn.Server(quiet(app, GRACE_S))
            self._sink = server, asyncio.create_task(server.serve(sockets=[listener]))
            log.info("eval-protocol: FW_TRACING_GATEWAY_BASE_URL=http://%s", self._listen)
        return f"http://{self._listen}"

    async def close(self) -> None:
        """Stop listening."""
        if self._sink is not None:
            server, serving = self._sink
            server.should_exit = True
            await serving

    async def _log(self, request: Request) -> Response:
        """One log line; a final status ends its rollout, the first one counts."""
        line = await request.json()
        code = (line.get("status") or {}).get("code")
        if code is not None and code != RUNNING:
            for tag in line.get("tags", []):
                ended = self._ended.get(tag.removeprefix("rollout_id:"))
                if ended is not None and not ended.done():
                    ended.set_result(line)
        return JSONResponse({"ok": True})


def init_request(task: Json, policy: Policy, rollout: str) -> Json:
    """The body of `/init`. A task holds `messages`, and may hold `tools` and
    `completion_params`."""
    return {
        "completion_params": {**task.get("completion_params", {}), "model": policy.model},
        "messages": task["messages"],
        "tools": task.get("tools"),
        "model_base_url": policy.base_url,
        "api_key": policy.api_key,
        "metadata": {
            "invocation_id": "tradewind",
            "experiment_id": "tradewind",
            "rollout_id": rollout,
            "run_id": rollout,
            "row_id": rollout,
        },
    }


def outcome_of(line: Json) -> Outcome:
    """What a final status counts as: finished or OK is COMPLETED; what the policy sent that was
    invalid or too long is AGENT_ERROR; all else is the environment's."""
    status: dict[str, Any] = line["status"]
    extras = line.get("extras") or {}
    if status["code"] in (FINISHED, _OK):
        return Outcome(status=OutcomeStatus.COMPLETED, artefacts={"extras": extras})
    detail = f"status {status['code']}: {status.get('message')}"
    caused = status["code"] in (_INVALID, _OUT_OF_RANGE)
    kind = OutcomeStatus.AGENT_ERROR if caused else OutcomeStatus.ENV_ERROR
    return Outcome(status=kind, artefacts={"extras": extras}, detail=detail)
