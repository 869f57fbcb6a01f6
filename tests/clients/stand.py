"""Ledger, pool and gateway on loopback: what stands between an agent and its engine."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import uvicorn
from engines import Watched

from tradewind.algo.advantages import group_mean
from tradewind.gateway.app import create_app
from tradewind.gateway.config import GatewayConfig
from tradewind.gateway.gateway import Gateway
from tradewind.ledger.ledger import Ledger
from tradewind.ledger.rollouts import LeasedRollout, LeaseTerms
from tradewind.pool.server import PoolServer
from tradewind.pool.status import PoolStatus
from tradewind.render.renderer import Renderer
from tradewind.rewards.compose import compose
from tradewind.types import (
    Attestation,
    ClosedGroup,
    Outcome,
    PoolReport,
    Score,
    Step,
    Task,
    Turn,
    WeightVersion,
)

POOL_KEY, USER_KEY = "pool-key", "user-key"
TERMS = LeaseTerms(ttl_s=600.0, deadline_s=600.0, max_running=1000)
WAIT_S = 60.0


@dataclass
class Stand:
    """What a test plays with."""

    ledger: Ledger
    engine: Watched
    gateway: Gateway
    url: str
    pool_url: str

    def lease(self, **terms: Any) -> LeasedRollout:
        """The next rollout; opens a group of four if none waits."""
        asked = replace(TERMS, **terms)
        leased = self.ledger.lease_next("w", time.time(), asked, ())
        if leased is None:
            self.ledger.open_training_group(4)
            leased = self.ledger.lease_next("w", time.time(), asked, ())
        assert leased is not None
        return leased

    def turns(self, lease: LeasedRollout) -> list[Turn]:
        """Once all of them are known to have arrived."""
        return wait_until(
            lambda: (
                (found := self.ledger.turns(lease.rollout_id))
                and all(turn.delivered for turn in found)
                and found
            )
        )

    def serve(self, version: int) -> None:
        """The router knows the version that the engine has."""
        self.ledger.record_pool(_report(self.pool_url, version))
        self.gateway.router._read_at = float("-inf")

    def grade(self, lease: LeasedRollout, value: float) -> None:
        """What worker and grader do."""
        self.ledger.finish(lease.rollout_id, Outcome(status="completed"), time.time())
        self.ledger.claim_finished("grader", 100, time.time(), 60.0)
        score = Score(rollout_id=lease.rollout_id, source="s", source_version="1", value=value)
        self.ledger.write_scores(lease.rollout_id, [score])

    def closed(self, groups: int, version: int) -> list[ClosedGroup]:
        """Closes groups whose scores are there, and gives them to the trainer of `version`."""
        self.ledger.close_ready(compose, group_mean)
        return self.ledger.claimable(groups, version, 0)

    def commit(self, number: int, groups: list[ClosedGroup]) -> None:
        """Step `number` made version `number + 1` of `groups`."""
        step = Step(
            step=number,
            version=number + 1,
            group_ids=tuple(group.group.group_id for group in groups),
            metrics={},
            seconds=0.0,
            committed_at=time.time(),
        )
        self.ledger.commit_step(step, _version(number + 1))


@contextmanager
def standing(folder: Path, model: Path, engine: Any, **config: Any) -> Iterator[Stand]:
    """`engine` is not started yet; a free port each."""
    renderer = Renderer.open(model)
    ledger = Ledger.open(folder / "ledger.sqlite")
    ledger.create_run({"run_id": "clients", "seed": 7})
    task = Task(task_id="t", kind="k", split="train", input={}, reference={})
    ledger.add_tasks([task])
    ledger.commit_version(_version(0))
    watched = Watched(engine)
    watched.start()
    status = PoolStatus("paris", "", "b3:0")
    status.serves(Attestation(**_attested()), "none")
    pool_url, end_pool = _serve(PoolServer(watched, status, POOL_KEY).app())
    settings = GatewayConfig(**{"pool_alive_s": 1e6, "max_tokens": 64, **config})
    gateway = Gateway(settings, ledger, renderer, pool_key=POOL_KEY, user_key=USER_KEY)
    url, end_gateway = _serve(create_app(gateway))
    stand = Stand(ledger, watched, gateway, url, pool_url)
    stand.serve(0)
    try:
        yield stand
    finally:
        end_gateway()
        end_pool()
        watched.stop()
        ledger.close()


def wait_until(condition: Callable[[], Any]) -> Any:
    """Polls until true; a deadline, not a timing assertion."""
    deadline = time.monotonic() + WAIT_S
    while not (value := condition()):
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.005)
    return value


def _serve(app: Any) -> tuple[str, Callable[[], None]]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()

    def end() -> None:
        server.should_exit = True
        thread.join(WAIT_S)

    wait_until(lambda: server.started)
    return f"http://127.0.0.1:{listener.getsockname()[1]}", end


def _version(number: int) -> WeightVersion:
    return WeightVersion(
        version=number,
        state_id=f"b3:{number}",
        parent_state_id=f"b3:{number - 1}" if number else None,
        manifest=f"m{number}",
        stage="rl" if number else "base",
        bytes_shipped=1,
        bytes_full=1,
    )


def _attested() -> dict[str, Any]:
    figures = {"bytes_fetched": 0, "stage_s": 0.0, "pause_ms": 0.0, "activated_at": time.time()}
    return {"pool": "paris", "version": 0, "state_id": "b3:0", **figures}


def _report(url: str, version: int) -> PoolReport:
    load = {"max_batch": 64, "running": 0, "waiting": 0, "tokens_per_s": 0.0, "dtype": "float32"}
    return PoolReport(
        pool="paris",
        url=url,
        base_state_id="b3:0",
        version=version,
        state="serving",
        at=time.time(),
        **load,
    )
