"""A real controller and a small OpenAI endpoint on loopback, and workers with toy environments."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import openai
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tradewind.controller.config import ControllerConfig
from tradewind.controller.controller import Controller
from tradewind.controller.keys import Keys
from tradewind.controller.main import serve
from tradewind.http.listening import listen
from tradewind.ledger import keys as ledger_keys
from tradewind.ledger.ledger import Ledger
from tradewind.types import (
    Completion,
    Outcome,
    PoolReport,
    Task,
    Turn,
    TurnState,
    VersionSpan,
    WeightVersion,
    turn_id,
)
from tradewind.worker.client import ControllerClient
from tradewind.worker.config import WorkerConfig
from tradewind.worker.play import player
from tradewind.worker.worker import Worker

KEYS = Keys(worker="worker-key", pool="pool-key", admin="admin-key")


class Endpoint:
    """Answers every chat with its last message, and captures turns as the gateway would."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.app = Starlette(routes=[Route("/v1/chat/completions", self.chat, methods=["POST"])])

    async def chat(self, request: Request) -> JSONResponse:
        key = request.headers["authorization"].removeprefix("Bearer ")
        session = self._ledger.session(ledger_keys.digest(key))
        if session is None or not session.open:
            return JSONResponse({"error": {"message": "the rollout is over"}}, 409)
        messages = (await request.json())["messages"]
        self._capture(session.rollout_id, messages)
        message = {"role": "assistant", "content": messages[-1]["content"].upper()}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        return JSONResponse(
            {
                "id": "x",
                "object": "chat.completion",
                "created": 0,
                "model": "m",
                "choices": [choice],
            }
        )

    def _capture(self, rollout: str, messages) -> None:
        index = len(self._ledger.turns(rollout))
        intent = Turn(
            turn_id=turn_id(rollout, index),
            rollout_id=rollout,
            index=index,
            parent=None,
            state="intent",
            prompt_ids=(1,),
            completion=None,
            temperature=1.0,
            messages=tuple(messages),
            started_at=time.time(),
        )
        self._ledger.write_intent(intent)
        done = Completion(
            output_ids=(2,),
            logprobs=(-0.1,),
            spans=(VersionSpan(version=0, count=1),),
            finish_reason="stop",
            pool="p",
        )
        changes = {"state": TurnState.DONE, "completion": done, "finished_at": time.time()}
        self._ledger.finish_turn(intent.model_copy(update=changes))


def prepare(path: Path) -> Ledger:
    ledger = Ledger.open(path)
    ledger.create_run({"seed": 3})
    ledger.add_tasks(
        Task(task_id=f"t{i}", kind="k", split="train", input={"q": f"q{i}"}, reference={})
        for i in range(8)
    )
    base = {"version": 0, "state_id": "s0", "parent_state_id": None, "manifest": "m"}
    ledger.commit_version(WeightVersion(**base, stage="base", bytes_shipped=0, bytes_full=1))
    pool = {"pool": "p", "url": "u", "base_state_id": "s0", "version": 0, "state": "serving"}
    load = {"max_batch": 8, "running": 0, "waiting": 0, "tokens_per_s": 0.0, "dtype": "fp32"}
    ledger.record_pool(PoolReport(**pool, **load, at=0.0), now=time.time())
    ledger.set_meta("training_open", True)
    return ledger


class Site:
    """Controller and endpoint, served on loopback in this event loop."""

    def __init__(self, ledger: Ledger, settings) -> None:
        self.ledger, self._settings, self.port = ledger, settings, 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start_controller(self) -> None:
        listener = listen("127.0.0.1", self.port)
        self.port = listener.getsockname()[1]
        config = ControllerConfig(
            **{
                "tick_s": 0.01,
                "group_size": 2,
                "groups_per_step": 2,
                "pool_alive_s": 1e6,
                "gateway_url": self.gateway_url,
                **self._settings,
            }
        )
        self.controller = Controller(config, self.ledger)
        self._serving = asyncio.create_task(serve(self.controller, KEYS, listener))

    async def stop_controller(self) -> None:
        self.controller.stop()
        await self._serving

    async def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.ledger.counts()
            await asyncio.sleep(0.01)

    def finished(self) -> int:
        return self.ledger.counts().rollouts.get("finished", 0)


@asynccontextmanager
async def site(path: Path, **settings):
    ledger = prepare(path)
    made = Site(ledger, settings)
    gateway_socket = listen("127.0.0.1", 0)
    made.gateway_url = f"http://127.0.0.1:{gateway_socket.getsockname()[1]}/v1"
    config = uvicorn.Config(Endpoint(ledger).app, log_level="warning", timeout_graceful_shutdown=1)
    gateway = uvicorn.Server(config)
    serving = asyncio.create_task(gateway.serve(sockets=[gateway_socket]))
    await made.start_controller()
    try:
        yield made
    finally:
        await made.stop_controller()
        gateway.should_exit = True
        await serving
        assert ledger.audit() == []
        ledger.close()


@asynccontextmanager
async def worker(url: str, env, key: str = "worker-key", **settings):
    config = WorkerConfig(**{"wait_s": 0.2, "retry_s": 0.01, "grace_s": 5.0, **settings})
    async with ControllerClient(url, key, config) as client:
        made = Worker(player(env), client, config)
        running = asyncio.create_task(made.run())
        try:
            yield made
        finally:
            made.stop()
            await running


async def speak(task, policy) -> Outcome:
    """The toy environment: one chat, by the lightest client."""
    async with httpx.AsyncClient(verify=False) as client:
        answer = await client.post(
            policy.base_url + "/chat/completions",
            headers={"authorization": f"Bearer {policy.api_key}"},
            json={"model": policy.model, "messages": [{"role": "user", "content": task["q"]}]},
        )
    answer.raise_for_status()
    said = answer.json()["choices"][0]["message"]["content"]
    return Outcome(status="completed", artefacts={"said": said})


async def shout(task, policy) -> Outcome:
    """The same with the stock client."""
    async with openai.AsyncOpenAI(base_url=policy.base_url, api_key=policy.api_key) as client:
        answer = await client.chat.completions.create(
            model=policy.model, messages=[{"role": "user", "content": task["q"]}]
        )
    return Outcome(status="completed", artefacts={"said": answer.choices[0].message.content})


def play(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scenario())
