"""The push protocol written once more, from its documentation alone, with a fault on demand.

It shares no code with `tradewind.envs.push`. `FAULTS` says which check notices which fault.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import time

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

FAULTS = {
    "answers everything with 500": "reachable",
    "answers 200 for what it does not know": "reachable",
    "refuses without a sentence": "reachable",
    "says done instead of succeeded": "plays",
    "cannot play": "plays",
    "never calls the model": "calls-the-model",
    "asks for its favourite model": "calls-the-model",
    "plays inside POST": "answers-at-once",
    "uses the newest key for all": "two-at-once",
    "starts again when asked again": "create-twice",
    "answers 201 when asked again": "create-twice",
    "takes another body": "another-body",
    "looks, waits, then starts": "retry-storm",
    "starts again after the end": "create-after-end",
    "cancels what is over": "result-stays",
    "does not cancel": "cancel",
    "cancels in name only": "cancel",
    "keeps orphans": "lease-lost",
    "does not hear polls": "polls-renew",
    "knows no deadline": "deadline",
    "calls the deadline its own failure": "deadline",
    "takes unsigned requests": "unsigned",
    "signs no body": "bad-signature",
    "signs no path": "bad-signature",
    "has no clock": "stale-timestamp",
    "believes the future": "stale-timestamp",
    "forgets nonces": "replayed-nonce",
    "answers 500 to a wrong body": "wrong-schema",
    "takes any protocol": "wrong-schema",
    "takes any size": "large-body",
    "calls an overflow null": "overflow",
    "hammers a busy model": "model-busy",
    "calls silence a wrong answer": "model-down",
    "tells no cause": "model-down",
    "goes on when the session is over": "session-over",
    "repeats its key": "secrets-stay",
}
LIMIT = 1_000_000


class Refuse(Exception):
    def __init__(self, status: int, sentence: str) -> None:
        self.status, self.sentence = status, sentence


class OtherServer:
    def __init__(self, secret: str, fault: str | None = None) -> None:
        assert fault is None or fault in FAULTS
        self.secret, self.fault = secret, fault
        self.rollouts: dict[str, dict] = {}
        self.nonces: set[str] = set()
        self.newest_key = ""
        self.looking, self.two_look = 0, asyncio.Event()

    def has(self, *faults: str) -> bool:
        return self.fault in faults

    def app(self) -> Starlette:
        @contextlib.asynccontextmanager
        async def lifespan(_app):
            yield
            tasks = [t for r in self.rollouts.values() for t in r["tasks"]]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        routes = [
            Route("/rollouts", self.create, methods=["POST"]),
            Route("/rollouts/{id}", self.get, methods=["GET"]),
            Route("/rollouts/{id}/cancel", self.cancel, methods=["POST"]),
        ]
        return Starlette(routes=routes, exception_handlers={Refuse: self.refuse}, lifespan=lifespan)

    def refuse(self, _request: Request, error: Exception) -> Response:
        assert isinstance(error, Refuse)
        said = {} if self.has("refuses without a sentence") else {"error": error.sentence}
        return JSONResponse(said, error.status)

    async def read(self, request: Request, path: str) -> bytes:
        if self.has("answers everything with 500"):
            raise Refuse(500, "no")
        body = await request.body()
        if len(body) > LIMIT and not self.has("takes any size"):
            raise Refuse(413, "too large")
        sent = {n: request.headers.get(f"tradewind-{n}", "") for n in ("timestamp", "nonce")}
        if not request.headers.get("tradewind-signature") and self.has("takes unsigned requests"):
            return body
        digest = hashlib.sha256(b"" if self.has("signs no body") else body).hexdigest()
        path = "" if self.has("signs no path") else path
        text = "\n".join(("v1", sent["timestamp"], sent["nonce"], request.method, path, digest))
        mac = hmac.new(self.secret.encode(), text.encode(), hashlib.sha256).hexdigest()
        lax = self.has("signs no body", "signs no path")
        fits = f"v1={mac}" == request.headers.get("tradewind-signature")
        if request.headers.get("tradewind-key-id") != "k" or not (fits or lax):
            raise Refuse(401, "not signed by k")
        old = time.time() - int(sent["timestamp"])
        if old > 300 and not self.has("has no clock"):
            raise Refuse(401, "stale")
        if old < -300 and not self.has("has no clock", "believes the future"):
            raise Refuse(401, "stale")
        if sent["nonce"] in self.nonces and not self.has("forgets nonces"):
            raise Refuse(401, "replayed")
        self.nonces.add(sent["nonce"])
        return body

    def parse(self, body: bytes) -> dict:
        try:
            asked = json.loads(body)
            assert asked["protocol"] == 1 or self.has("takes any protocol")
            assert asked["policy"]["api_key"] and isinstance(asked["rollout_id"], str)
            assert isinstance(asked["task"], dict) and asked["deadline"] + asked["lease_s"] > 0
            return asked
        except (ValueError, KeyError, TypeError, AssertionError):
            bad = 500 if self.has("answers 500 to a wrong body") else 422
            raise Refuse(bad, "does not fit") from None

    async def create(self, request: Request) -> Response:
        asked = self.parse(await self.read(request, "/rollouts"))
        known = self.rollouts.get(asked["rollout_id"])
        if known is not None:
            return self.again(known, asked)
        if self.has("looks, waits, then starts"):
            await self.wait_for_another()
        self.newest_key = asked["policy"]["api_key"]
        rollout = {"asked": asked, "state": "running", "outcome": None, "tasks": []}
        rollout["heard"] = time.monotonic()
        self.rollouts[asked["rollout_id"]] = rollout
        self.start(rollout)
        if self.has("plays inside POST"):
            await asyncio.wait(rollout["tasks"])
        return self.tell(rollout, 201)

    async def wait_for_another(self) -> None:
        """Two requests stand between looking and starting, or it was only one."""
        self.looking += 1
        if self.looking > 1:
            self.two_look.set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.two_look.wait(), 0.5)
        self.looking -= 1

    def again(self, known: dict, asked: dict) -> Response:
        if known["asked"] != asked and not self.has("takes another body"):
            raise Refuse(409, "another body")
        over = known["state"] != "running"
        if self.has("starts again when asked again") or (
            over and self.has("starts again after the end")
        ):
            self.start(known)
        return self.tell(known, 201 if self.has("answers 201 when asked again") else 200)

    def start(self, rollout: dict) -> None:
        rollout["tasks"].append(asyncio.create_task(self.live(rollout)))

    def found(self, rollout: str) -> dict:
        if rollout in self.rollouts:
            return self.rollouts[rollout]
        if self.has("answers 200 for what it does not know"):
            return {"asked": {"rollout_id": rollout}, "state": "running", "outcome": None}
        raise Refuse(404, "unknown")

    async def get(self, request: Request) -> Response:
        name = request.path_params["id"]
        await self.read(request, f"/rollouts/{name}")
        rollout = self.found(name)
        if not self.has("does not hear polls"):
            rollout["heard"] = time.monotonic()
        return self.tell(rollout, 200)

    async def cancel(self, request: Request) -> Response:
        name = request.path_params["id"]
        await self.read(request, f"/rollouts/{name}/cancel")
        rollout = self.found(name)
        over = rollout["state"] != "running"
        if (not over and not self.has("does not cancel")) or self.has("cancels what is over"):
            rollout["state"], rollout["outcome"] = "cancelled", None
            if not self.has("cancels in name only"):
                for task in rollout["tasks"]:
                    task.cancel()
        return self.tell(rollout, 200)

    def tell(self, rollout: dict, status: int) -> Response:
        said = {"rollout_id": rollout["asked"]["rollout_id"], "state": rollout["state"]}
        return JSONResponse({**said, "outcome": rollout["outcome"]}, status)

    async def live(self, rollout: dict) -> None:
        asked = rollout["asked"]
        playing = asyncio.create_task(self.play(asked))
        try:
            while True:
                orphan = rollout["heard"] + asked["lease_s"] - time.monotonic()
                late = asked["deadline"] - time.time()
                left = [10.0]
                left += [] if self.has("keeps orphans") else [orphan]
                left += [] if self.has("knows no deadline") else [late]
                await asyncio.wait([playing], timeout=max(0.0, min(left)))
                if playing.done():
                    self.end(rollout, playing.result())
                    return
                if orphan <= 0 and not self.has("keeps orphans"):
                    rollout["state"] = "expired"
                    return
                if late <= 0 and not self.has("knows no deadline"):
                    own = self.has("calls the deadline its own failure")
                    self.end(rollout, ("env_error" if own else "agent_limit", {}, "too late"))
                    return
        finally:
            playing.cancel()

    def end(self, rollout: dict, result: tuple) -> None:
        status, artefacts, detail = result
        if rollout["state"] == "running" or self.has("cancels in name only"):
            good = status in ("completed", "agent_limit", "agent_error")
            state = "succeeded" if good else "failed"
            if self.has("says done instead of succeeded") and good:
                state = "done"
            if self.has("cancels in name only") and rollout["state"] == "cancelled":
                return
            if self.has("tells no cause"):
                detail = None
            rollout["state"] = state
            rollout["outcome"] = {"status": status, "artefacts": artefacts, "detail": detail}

    async def play(self, asked: dict) -> tuple:
        if self.has("cannot play"):
            return "env_error", {}, "the product is down"
        if self.has("never calls the model"):
            return "completed", {}, None
        policy = asked["policy"]
        for turn in range(2):
            newest = self.has("uses the newest key for all")
            key = self.newest_key if newest else policy["api_key"]
            status = await self.ask(policy, key)
            if status == 400:
                null = self.has("calls an overflow null")
                return "env_error" if null else "agent_error", {}, "overflow"
            if status != 200:
                lie = self.has("calls silence a wrong answer")
                return "completed" if lie else "infra_error", {}, f"model: {status} in turn {turn}"
        if self.has("repeats its key"):
            return "completed", {"key": key}, None
        return "completed", {}, None

    async def ask(self, policy: dict, key: str) -> int:
        model = "gpt-4" if self.has("asks for its favourite model") else policy["model"]
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            for _ in range(40):
                answer = await client.post(
                    policy["base_url"] + "/chat/completions",
                    json={"model": model, "messages": [{"role": "user", "content": "x"}]},
                    headers={"authorization": f"Bearer {key}"},
                )
                if answer.status_code == 429 and not self.has("hammers a busy model"):
                    await asyncio.sleep(float(answer.headers["retry-after"]))
                    continue
                again = answer.status_code == 409 and self.has("goes on when the session is over")
                if not again and answer.status_code != 429:
                    break
        return answer.status_code
