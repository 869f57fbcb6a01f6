"""A controller over real HTTP on loopback, in a thread, with everything around it played."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tradewind.controller.config import ControllerConfig
from tradewind.controller.controller import Controller
from tradewind.controller.keys import Keys
from tradewind.controller.main import serve
from tradewind.http.listening import listen
from tradewind.ledger import keys as ledger_keys
from tradewind.ledger.ledger import Ledger
from tradewind.types import (
    Completion,
    PoolReport,
    Score,
    Step,
    Task,
    Turn,
    TurnState,
    VersionSpan,
    WeightVersion,
    turn_id,
)

KEYS = Keys(worker="worker-key", pool="pool-key", admin="admin-key")


def version(number: int) -> WeightVersion:
    return WeightVersion(
        version=number,
        state_id=f"s{number}",
        parent_state_id=None if number == 0 else f"s{number - 1}",
        manifest="m",
        stage="base",
        bytes_shipped=1,
        bytes_full=1,
    )


class World:
    """The controller under test and one client for each side that talks to it."""

    def __init__(self, path: Path, **settings) -> None:
        self.path, self.settings = path, settings
        self.ledger = Ledger.open(path)
        self.ledger.create_run({"seed": 3})
        splits = ["train"] * 6 + ["heldout"] * 2
        self.ledger.add_tasks(
            Task(task_id=f"t{i}", kind="k", split=s, input={"q": i}, reference={"sql": "secret"})
            for i, s in enumerate(splits)
        )
        self.ledger.commit_version(version(0))
        self.start()

    def start(self) -> None:
        """Start the controller; again after `kill`."""
        defaults = {"port": 0, "tick_s": 0.01, "group_size": 2, "groups_per_step": 2}
        defaults["pool_alive_s"] = 600.0  # a busy machine is no dead pool
        config = ControllerConfig(**{**defaults, **self.settings})
        listener = listen("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        ready = threading.Event()

        async def live() -> None:
            self.served_ledger = Ledger.open(self.path)
            self.controller = Controller(config, self.served_ledger)
            self.loop = asyncio.get_running_loop()
            ready.set()
            await serve(self.controller, KEYS, listener)
            self.served_ledger.close()

        self.thread = threading.Thread(target=lambda: asyncio.run(live()))
        self.thread.start()
        assert ready.wait(60)
        self.http = httpx.Client(base_url=self.url, timeout=90)

    def stop(self) -> None:
        self.http.close()
        self.loop.call_soon_threadsafe(self.controller.stop)
        self.thread.join(timeout=60)
        assert not self.thread.is_alive()

    def post(self, path: str, body=None, key: str = "") -> httpx.Response:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return self.http.post(path, json=body, headers=headers)

    def get(self, path: str, key: str = "admin-key") -> dict:
        answer = self.http.get(path, headers={"authorization": f"Bearer {key}"} if key else {})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def status(self) -> dict:
        return self.get("/v1/status", key="")

    def pool(self, number: int = 0, name: str = "paris", **changes) -> httpx.Response:
        fields = {
            "pool": name,
            "url": "http://127.0.0.1:1",
            "base_state_id": "s0",
            "version": number,
            "state": "serving",
            "max_batch": 8,
            "running": 0,
            "waiting": 0,
            "tokens_per_s": 0.0,
            "dtype": "fp32",
            "at": 1.0,
        }
        report = PoolReport(**{**fields, **changes})
        return self.post("/v1/pools/report", report.model_dump(mode="json"), "pool-key")

    def train(self, opened: bool = True) -> httpx.Response:
        return self.post("/v1/training", {"open": opened}, "admin-key")

    def lease(self, wait_s: float = 30.0) -> dict | None:
        answer = self.post("/v1/leases", {"worker": "w1", "wait_s": wait_s}, "worker-key")
        assert answer.status_code in (200, 204), answer.text
        return answer.json() if answer.status_code == 200 else None

    def chat(self, lease: dict, number: int = 0) -> None:
        """What the gateway does for one call of the agent."""
        session = self.ledger.session(ledger_keys.digest(lease["model_key"]))
        assert session is not None and session.open
        intent = Turn(
            turn_id=turn_id(session.rollout_id, 0),
            rollout_id=session.rollout_id,
            index=0,
            parent=None,
            state="intent",
            prompt_ids=(1,),
            completion=None,
            temperature=1.0,
            messages=(),
            started_at=time.time(),
        )
        self.ledger.write_intent(intent)
        done = Completion(
            output_ids=(2,),
            logprobs=(-0.1,),
            spans=(VersionSpan(version=number, count=1),),
            finish_reason="stop",
            pool="paris",
        )
        self.ledger.finish_turn(
            intent.model_copy(
                update={"state": TurnState.DONE, "completion": done, "finished_at": time.time()}
            )
        )

    def report(self, lease: dict, key: str = "result_key", **outcome) -> httpx.Response:
        body = {"status": "completed", **outcome}
        return self.post(f"/v1/rollouts/{lease['rollout_id']}/outcome", body, lease[key])

    def grade(self, lease: dict, value: float | None) -> None:
        """What the grader does."""
        self.ledger.claim_finished("g", 100, time.time(), 60.0)
        rollout = lease["rollout_id"]
        cause = None if value is not None else "env_error: down"
        self.ledger.write_scores(
            rollout,
            [Score(rollout_id=rollout, source="x", source_version="1", value=value, cause=cause)],
        )

    def rollout(self, value: float | None = 1.0, number: int = 0) -> dict:
        """A whole rollout, from lease to score."""
        lease = self.lease()
        assert lease is not None, self.status()["waits"]
        self.chat(lease, number)
        assert self.report(lease).status_code == 200
        self.grade(lease, value)
        return lease

    def commit_step(self, n: int = 2) -> Step:
        """What the trainer does."""
        last = self.ledger.last_step()
        number = 0 if last is None else last.step + 1
        self.until(lambda: self.ledger.closed() >= n)
        claimed = self.ledger.claimable(n, number, self.controller.config.max_staleness)
        step = Step(
            step=number,
            version=number + 1,
            group_ids=tuple(c.group.group_id for c in claimed),
            metrics={},
            seconds=1.0,
            committed_at=time.time(),
        )
        self.ledger.commit_step(step, version(number + 1))
        return step

    def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        """Poll until it holds; the deadline only turns a hang into a failure."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.status()
            time.sleep(0.01)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Callable[..., World]]:
    worlds: list[World] = []

    def make(**settings) -> World:
        worlds.append(World(tmp_path / f"{len(worlds)}.sqlite", **settings))
        return worlds[-1]

    yield make
    for made in worlds:
        made.stop()
        assert made.ledger.audit() == []
        made.ledger.close()
