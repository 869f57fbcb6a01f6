"""One run, four regions: what lies between the end of an optimiser step and proven, active weights.

    policy ─► publisher ─► S3 (moto) ◄── direct ──────────────── pool near
                               ▲ ◄── line 40 ms, 200 Mbit/s ──── pool oregon
                               │ ◄── line 90 ms, 100 Mbit/s ──── pool frankfurt
                               └ ◄── line 150 ms, 50 Mbit/s ──── pool mumbai; at the end one more

Pools are real pool processes with the embedded engine, each decoding a few tokens all the time, on
the cores of one machine, which they share with the trainer. A version is published when the one
before it is active everywhere.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any

import httpx
import numpy as np
from common import s3
from common.side import BENCHMARKS

from stream.policy import Policy, llama, llama_shapes, write_checkpoint
from stream.reports import Reports
from tradewind.types import GenerateRequest
from tradewind.types.weights import WeightVersion
from tradewind.weights.bucket import Bucket
from tradewind.weights.ladder import Ladder
from tradewind.weights.publish import Publisher
from tradewind.weights.state import State
from tradewind.weights.tensors import TensorSet

RUN, KEY, URL = "sync", "pool-key", f"s3://{s3.BUCKET}/sync"
NEAR, JOINER = "near", "joiner"
REGIONS = {"oregon": (40, 200), "frankfurt": (90, 100), "mumbai": (150, 50)}
"""Round trip in ms, Mbit/s in each direction."""
START_S, ACTIVE_S = 180.0, 120.0
"""Deadlines: until a pool serves its first version, and a version is active everywhere."""
TOKENS, REST_S = 8, 0.25
"""The load of a pool: so many tokens, then a rest."""


@dataclass
class Lines:
    """The lines to `target`, in a process of their own."""

    process: subprocess.Popen[str]
    ports: dict[str, int]

    @classmethod
    @contextmanager
    def to(cls, target: str, regions: Mapping[str, tuple[float, float]]) -> Iterator[Lines]:
        """One for each region; see `REGIONS`."""
        argv = [sys.executable, "-m", "stream.line", target.removeprefix("http://")]
        argv += [f"{rtt}:{rate}" for rtt, rate in regions.values()]
        with subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
        ) as process:
            try:
                lines = cls(process, {})
                lines.ports = dict(zip(regions, lines._next()["ports"], strict=True))
                yield lines
            finally:
                process.kill()

    def received(self) -> dict[str, int]:
        """Bytes that have come down each line so far."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return dict(zip(self.ports, self._next()["down"], strict=True))

    def _next(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found


def environment(**more: str) -> dict[str, str]:
    paths = (BENCHMARKS, BENCHMARKS.parent / "src")
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), **threads, **more}


@dataclass
class Fleet:
    """The pools, and what they report."""

    scratch: Path
    reports: Reports
    pools: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str, endpoint: str, bucket: str = URL) -> None:
        config = {
            "name": name,
            "model": str(self.scratch / "model"),
            "bucket": bucket,
            "controller": self.reports.url,
            "max_batch": 4,
            "max_tokens": 1024,
        }
        file = self.scratch / f"{name}.json"
        file.write_text(json.dumps(config), encoding="utf-8")
        env = environment(TRADEWIND_POOL_KEY=KEY, **s3.environment(endpoint))
        with (self.scratch / f"{name}.log").open("wb") as log:
            argv = [sys.executable, "-m", "tradewind.pool", "--config", str(file)]
            self.pools[name] = subprocess.Popen(argv, stdout=log, stderr=log, env=env)

    def stop(self) -> None:
        for process in self.pools.values():
            process.terminate()
        for process in self.pools.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Load(threading.Thread):
    """A few tokens from every pool that serves, again and again."""

    def __init__(self, reports: Reports) -> None:
        super().__init__(name="load", daemon=True)
        self._reports, self._done = reports, threading.Event()
        self.tokens = 0

    def run(self) -> None:
        headers = {"Authorization": f"Bearer {KEY}"}
        with httpx.Client(headers=headers, timeout=60, trust_env=False) as client:
            count = 0
            while not self._done.wait(REST_S):
                for url in filter(None, map(self._reports.serving, list(self._reports.last))):
                    count += 1
                    request = GenerateRequest(
                        request_id=f"load-{count}",
                        prompt_ids=(1, 2, 3),
                        max_tokens=TOKENS,
                        stop_ids=(),
                    )
                    try:
                        client.post(f"{url}/v1/generate", content=request.model_dump_json())
                    except httpx.HTTPError:
                        continue  # the pool has just ended
                    self.tokens += TOKENS

    def close(self) -> None:
        self._done.set()
        self.join(60)


@dataclass
class Trainer:
    """Publishes the run into the bucket, with its ladder."""

    policy: Policy
    bucket: Bucket
    rows: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._publisher = Publisher(self.bucket, RUN, threads=1)
        self._tensors: TensorSet = self.policy.tensors()
        self.version: WeightVersion = self._publisher.publish(0, None, {}, self._tensors, "base")
        self._publisher.announce(self.version)
        self.ladder = Ladder(self.bucket, RUN, State.of(0, self._tensors))

    def step(self) -> dict[str, Any]:
        """One version; the row says when the step ended, and what publishing took."""
        self.policy.step()
        after, number = self.policy.tensors(), self.version.version + 1
        ended = time.time()
        self.version = self._publisher.publish(
            number, self.version, self._tensors, after, "rl", step=number
        )
        self._publisher.announce(self.version)
        row = {
            "version": number,
            "ended": ended,
            "publish_s": time.time() - ended,
            "bytes": self.version.bytes_shipped,
            "changed": mean(float((self._tensors[n] != after[n]).mean()) for n in after),
        }
        self.ladder.offer(self.version, after)
        self._tensors = after
        self.rows.append(row)
        return row


def measure(scratch: Path, weights: int, newest: int, lr: float) -> dict[str, Any]:
    """The whole run; see `figures_of` for what is made of it."""
    config = llama(weights)
    policy = Policy(llama_shapes(config), lr)
    write_checkpoint(scratch / "model", config, policy.tensors())
    with ExitStack() as stack:
        store = stack.enter_context(s3.moto())
        os.environ.update(s3.environment(store))
        lines = stack.enter_context(Lines.to(store, REGIONS))
        trainer = Trainer(policy, Bucket.open(URL))
        reports = Reports()
        stack.callback(reports.close)
        fleet = Fleet(scratch, reports)
        stack.callback(fleet.stop)
        endpoints = {NEAR: store}
        endpoints |= {name: f"http://127.0.0.1:{port}" for name, port in lines.ports.items()}
        for name, endpoint in endpoints.items():
            fleet.start(name, endpoint)
        reports.await_version(list(endpoints), 0, START_S)
        load = Load(reports)
        load.start()
        stack.callback(load.close)
        before = lines.received()
        for _ in range(newest):
            row = trainer.step()
            reports.await_version(list(endpoints), row["version"], ACTIVE_S)
            shown = {n: round(_active(reports, n, row), 2) for n in endpoints}
            print(
                f"  version {row['version']}: active after {shown} s", file=sys.stderr, flush=True
            )
        after = lines.received()
        status = trainer.ladder.close(ACTIVE_S)
        assert status.finished and not status.failed, status.last_error
        fleet.start(JOINER, endpoints[list(REGIONS)[-1]])
        reports.await_version([JOINER], newest, START_S)
        return {
            "bytes_full": trainer.version.bytes_full,
            "down": {n: after[n] - before[n] for n in REGIONS},
            "attestations": {
                pool: [found[v].model_dump() for v in sorted(found)]
                for pool, found in reports.attestations.items()
            },
            "versions": trainer.rows,
            "tokens": load.tokens,
        }


def _active(reports: Reports, pool: str, row: dict[str, Any]) -> float:
    return reports.attestations[pool][row["version"]].activated_at - row["ended"]


def figures_of(run: dict[str, Any]) -> dict[str, float]:
    """Seconds from the end of a step to active weights, pauses, bytes; medians over versions."""
    rows = {row["version"]: row for row in run["versions"]}
    figures: dict[str, float] = {}
    for pool in (NEAR, *REGIONS):
        proofs = [proof for proof in run["attestations"][pool] if proof["version"]]
        active = [proof["activated_at"] - rows[proof["version"]]["ended"] for proof in proofs]
        figures[f"active_seconds_{pool}"] = median(active)
        figures[f"active_seconds_most_{pool}"] = max(active)
        figures[f"pause_ms_p99_{pool}"] = _p99([proof["pause_ms"] for proof in proofs])
        if pool in REGIONS:
            figures[f"line_bytes_over_full_{pool}"] = (
                run["down"][pool] / len(rows) / run["bytes_full"]
            )
    every = [p["pause_ms"] for name in REGIONS for p in run["attestations"][name] if p["version"]]
    figures["pause_ms_p99"] = _p99(every)
    figures["publish_seconds"] = median(row["publish_s"] for row in rows.values())
    figures["changed_share"] = mean(row["changed"] for row in rows.values())
    last = run["attestations"][JOINER][-1]
    figures["late_join_bytes_over_full"] = last["bytes_fetched"] / run["bytes_full"]
    figures["late_join_stage_seconds"] = last["stage_s"]
    return figures


def _p99(values: Sequence[float]) -> float:
    return float(np.percentile(values, 99))
