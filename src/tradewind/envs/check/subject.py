"""The server under check, and the ways to talk to it, right and wrong."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from dataclasses import dataclass, field
from typing import Any

import httpx
from pydantic import ValidationError

from tradewind.envs.check.model import MODEL, CheckModel, Session
from tradewind.envs.signature import sign
from tradewind.types.assignment import PROTOCOL, Progress, hash_of
from tradewind.types.record import Json


class Failed(Exception):
    """A check that did not hold; the message says what was seen and what to do."""


class Skipped(Exception):
    """A check that says nothing here; the message says why."""


@dataclass(frozen=True)
class Limits:
    """How long the checks wait, in seconds."""

    patience_s: float = 30.0
    """For what has to come."""
    settle_s: float = 3.0
    """For what has to have ended: then nothing may follow."""
    lease_s: float = 2.0
    """Of the rollout whose caller goes away."""


@dataclass
class Subject:
    """Where it is and what has been seen of it."""

    url: str
    key: tuple[str, str]
    """(id, secret)."""
    model: CheckModel
    model_url: str
    task: Json
    http: httpx.AsyncClient
    limits: Limits = Limits()
    calls_per_rollout: int = 0
    """Calls of the model in the first rollout that was played."""
    said: bytearray = field(default_factory=bytearray)
    """Everything that it ever answered."""

    def body(self, session: Session, **changes: Any) -> Json:
        """A body of `POST /rollouts`; `changes` replace keys, None takes one out."""
        now = time.time()
        fields = {
            "protocol": PROTOCOL,
            "rollout_id": f"check-{secrets.token_hex(6)}",
            "task_id": "check",
            "task": self.task,
            "task_hash": hash_of(self.task),
            "seed": 7,
            "policy": {"base_url": self.model_url, "api_key": session.key, "model": MODEL},
            "deadline": now + 10 * self.limits.patience_s,
            "lease_s": 10 * self.limits.patience_s,
            **changes,
        }
        return {name: value for name, value in fields.items() if value is not None}

    async def post(self, body: Json) -> httpx.Response:
        """`POST /rollouts`, signed."""
        return await self.call("POST", "/rollouts", json.dumps(body).encode())

    async def call(
        self,
        method: str,
        path: str,
        content: bytes = b"",
        headers: dict[str, str] | None = None,
        within_s: float | None = None,
    ) -> httpx.Response:
        """One request, signed unless `headers` are given; raises `Failed` without an answer."""
        if headers is None:
            headers = sign(self.key, method, path, content)
        within_s = within_s or self.limits.patience_s
        try:
            async with asyncio.timeout(within_s):
                answer = await self.http.request(
                    method,
                    self.url + path,
                    content=content,
                    headers={"content-type": "application/json", **headers},
                    timeout=within_s,
                )
        except (TimeoutError, httpx.TimeoutException):
            raise Failed(f"no answer to {method} {_short(path)} within {within_s:g} s") from None
        except httpx.HTTPError as error:
            what = str(error) or type(error).__name__
            raise Failed(f"no answer to {method} {_short(path)} ({what})") from None
        self.said += answer.content
        return answer

    async def start(self, session: Session, **changes: Any) -> str:
        """Start a rollout that has to be accepted; its id."""
        return str((await self._accepted(session, **changes))["rollout_id"])

    async def begin(self) -> tuple[Session, Json]:
        """Start one whose model answers at once; its session and the body of its request."""
        session = self.model.open()
        return session, await self._accepted(session)

    async def _accepted(self, session: Session, **changes: Any) -> Json:
        body = self.body(session, **changes)
        expect(await self.post(body), 201, "a new rollout")
        return body

    async def get(self, rollout: str) -> Progress:
        """`GET /rollouts/{id}` of a rollout that has to be known."""
        answer = await self.call("GET", f"/rollouts/{rollout}")
        expect(answer, 200, "GET of a rollout that was started")
        return progress_in(answer, rollout)

    async def cancel(self, rollout: str) -> Progress:
        """`POST /rollouts/{id}/cancel` of a rollout that has to be known."""
        answer = await self.call("POST", f"/rollouts/{rollout}/cancel")
        expect(answer, 200, "cancelling a rollout that was started")
        return progress_in(answer, rollout)

    async def until_over(self, rollout: str, seconds: float | None = None) -> Progress:
        """Poll until it is over; raises `Failed` after `patience_s`."""
        seconds = seconds or self.limits.patience_s
        until, pause = time.monotonic() + seconds, 0.01
        while True:
            progress = await self.get(rollout)
            if progress.state.over:
                return progress
            if time.monotonic() > until:
                state = progress.state.value
                raise Failed(f"the rollout is still {state} after {seconds:g} s")
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.5)

    async def play(self, session: Session, **changes: Any) -> Progress:
        """A whole rollout."""
        return await self.until_over(await self.start(session, **changes))


def expect(answer: httpx.Response, status: int, what: str) -> None:
    """Raise `Failed` unless the answer has this status."""
    if answer.status_code != status:
        said = answer.text[:160].replace("\n", " ")
        raise Failed(f"{what} is answered with {answer.status_code}, not {status}: {said!r}")


def expect_refusal(answer: httpx.Response, statuses: tuple[int, ...], what: str) -> None:
    """Raise `Failed` unless the answer is one of these refusals, with a sentence under `error`."""
    if answer.status_code not in statuses:
        wanted = " or ".join(map(str, statuses))
        raise Failed(f"{what} is answered with {answer.status_code}, not {wanted}")
    try:
        sentence = answer.json()["error"]
    except (ValueError, KeyError, TypeError):
        sentence = None
    if not isinstance(sentence, str) or not sentence:
        raise Failed(f'{what}: the refusal has no sentence; answer {{"error": "..."}}')


def progress_in(answer: httpx.Response, rollout: str) -> Progress:
    """The answer's body as a record; raises `Failed` if it is none, or another rollout's."""
    try:
        progress = Progress.model_validate_json(answer.content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "body"
        raise Failed(f"the answer does not fit the schema: {where}: {first['msg']}") from None
    if progress.rollout_id != rollout:
        raise Failed(f"asked for {rollout}, told of {progress.rollout_id}")
    return progress


def _short(path: str) -> str:
    return path if len(path) < 60 else path[:57] + "..."
