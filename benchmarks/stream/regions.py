"""One run, four regions: what lies between the end of an optimiser step and proven, active weights.

    policy ─► publisher ─► S3 (moto) ◄── direct ──────────────── pool near
                               ▲ ◄── line 40 ms, 200 Mbit/s ──── pool oregon
                               │ ◄── line 90 ms, 100 Mbit/s ──── pool frankfurt
                               └ ◄── line 150 ms, 50 Mbit/s ──── pool mumbai; at the end one more

    afterwards: a line like mumbai's, a relay behind it, two pools behind that, at the end one more

Pools are real pool processes with the embedded engine, each decoding a few tokens all the time, on
the cores of one machine, which they share with the trainer. A version is published when the one
before it is active everywhere.
"""

from __future__ import annotations

import json
import os
import socket
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
FAR, RELAYED = "mumbai", "relayed"
PAIR, LATE_RELAYED = (f"{RELAYED}-1", f"{RELAYED}-2"), "late-relayed"
LINES = {**REGIONS, RELAYED: REGIONS[FAR]}
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
    """The pools and the relay, and what the pools report."""

    scratch: Path
    reports: Reports
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str, endpoint: str, bucket: str = URL) -> None:
        """A pool; `endpoint` is where it reaches S3."""
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
        self._start(name, "tradewind.pool", ["--config", str(file)], endpoint)

    def start_relay(self, endpoint: str) -> str:
        """Its URL; it has followed the run to its newest version."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        argv = ["--bucket", URL, "--port", str(port), "--model", str(self.scratch / "model")]
        argv += ["--cache", str(self.scratch / "cache")]
        self._start("relay", "tradewind.relay", argv, endpoint)
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + START_S
        while (mirror := _mirror_of(url)) is None or not mirror["version"]:
            assert time.monotonic() < deadline, f"the relay does not follow: {mirror}"
            time.sleep(0.2)
        return url

    def _start(self, name: str, module: str, argv: list[str], endpoint: str) -> None:
        keys = {"TRADEWIND_POOL_KEY": KEY, "TRADEWIND_RELAY_KEY": KEY}
        env = environment(**keys, **s3.environment(endpoint))
        with (self.scratch / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", module, *argv], stdout=log, stderr=log, env=env
            )

    def stop(self, names: Sequence[str] | None = None) -> None:
        """Ends those (default: all)."""
        leaving = [self.processes.pop(name) for name in names or list(self.processes)]
        for process in leaving:
            process.terminate()
        for process in leaving:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _mirror_of(url: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = httpx.get(f"{url}/v1/status", trust_env=False, timeout=5).json()
    except httpx.HTTPError:
        return None
    mirror: dict[str, Any] = found["mirror"]
    return mirror


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


@dataclass
class World:
    """Everything that runs, and what it has done so far."""

    trainer: Trainer
    reports: Reports
    fleet: Fleet
    lines: Lines
    endpoints: dict[str, str]

    def run(self, pools: Sequence[str], versions: int) -> dict[str, int]:
        """So many versions, active in all of `pools`; the bytes that came down each line."""
        before = self.lines.received()
        for _ in range(versions):
            row = self.trainer.step()
            self.reports.await_version(list(pools), row["version"], ACTIVE_S)
            shown = {n: round(_active(self.reports, n, row), 2) for n in pools}
            print(f"  version {row['version']}: active after {shown} s", file=sys.stderr)
        assert self.trainer.ladder.settle(ACTIVE_S).finished
        return self._since(before)

    def join(self, name: str, endpoint: str, bucket: str = URL) -> dict[str, int]:
        """One more pool, from the base to the newest version; the bytes down each line."""
        before = self.lines.received()
        self.fleet.start(name, endpoint, bucket)
        self.reports.await_version([name], self.trainer.version.version, START_S)
        down = self._since(before)
        self.fleet.stop([name])
        return down

    def _since(self, before: dict[str, int]) -> dict[str, int]:
        return {name: size - before[name] for name, size in self.lines.received().items()}


def measure(
    scratch: Path, weights: int, newest: int, lr: float, regions: Sequence[str] = tuple(REGIONS)
) -> dict[str, Any]:
    """The whole run; see `figures_of` for what is made of it. `FAR` is one of the regions."""
    config, lines = llama(weights), {name: LINES[name] for name in (*regions, RELAYED)}
    with ExitStack() as stack:
        world = _open(stack, scratch, Policy(llama_shapes(config), lr), config, lines)
        direct = list(world.endpoints)[:-1]
        for name in direct:
            world.fleet.start(name, world.endpoints[name])
        world.reports.await_version(direct, 0, START_S)
        load = Load(world.reports)
        load.start()
        stack.callback(load.close)
        down = world.run(direct, newest)
        joined = world.join(JOINER, world.endpoints[FAR])
        world.fleet.stop([name for name in direct if name != FAR])
        relay = world.fleet.start_relay(world.endpoints[RELAYED])
        for name in PAIR:
            world.fleet.start(name, "", relay)
        world.reports.await_version(list(PAIR), newest, START_S)
        beside = world.run([FAR, *PAIR], max(2, newest // 6))
        late = world.join(LATE_RELAYED, "", relay)
        status = world.trainer.ladder.close(ACTIVE_S)
        assert status.finished and not status.failed, status.last_error
        return {
            "bytes_full": world.trainer.version.bytes_full,
            "direct_versions": newest,
            "down": {"direct": down, "join": joined, "beside": beside, "join_relayed": late},
            "attestations": {
                pool: [found[v].model_dump() for v in sorted(found)]
                for pool, found in world.reports.attestations.items()
            },
            "proof_ms": world.reports.proof_ms,
            "versions": world.trainer.rows,
            "relay": _mirror_of(relay),
            "tokens": load.tokens,
        }


def _open(
    stack: ExitStack,
    scratch: Path,
    policy: Policy,
    config: dict[str, Any],
    regions: Mapping[str, tuple[float, float]],
) -> World:
    write_checkpoint(scratch / "model", config, policy.tensors())
    store = stack.enter_context(s3.moto())
    os.environ.update(s3.environment(store))
    lines = stack.enter_context(Lines.to(store, regions))
    reports = Reports()
    stack.callback(reports.close)
    fleet = Fleet(scratch, reports)
    stack.callback(fleet.stop)
    endpoints = {NEAR: store}
    endpoints |= {name: f"http://127.0.0.1:{port}" for name, port in lines.ports.items()}
    return World(Trainer(policy, Bucket.open(URL)), reports, fleet, lines, endpoints)


def _active(reports: Reports, pool: str, row: dict[str, Any]) -> float:
    return reports.attestations[pool][row["version"]].activated_at - row["ended"]


def figures_of(run: dict[str, Any]) -> dict[str, float]:
    """Seconds from the end of a step to active weights, pauses, bytes; medians over versions."""
    figures: dict[str, float] = {}
    first = {row["version"] for row in run["versions"] if row["version"] <= run["direct_versions"]}
    later = {row["version"] for row in run["versions"]} - first
    full, down = run["bytes_full"], run["down"]
    far = [name for name in REGIONS if name in run["attestations"]]
    for pool in (NEAR, *far):
        active = _seconds(run, pool, first)
        figures[f"active_seconds_{pool}"] = median(active)
        figures[f"active_seconds_most_{pool}"] = max(active)
        figures[f"pause_ms_p50_{pool}"] = median(_pauses(run, pool, first))
        figures[f"pause_ms_p99_{pool}"] = _p99(_pauses(run, pool, first))
        if pool in REGIONS:
            figures[f"line_bytes_over_full_{pool}"] = down["direct"][pool] / len(first) / full
    figures["pause_ms_p99"] = _p99([p for name in far for p in _pauses(run, name, first)])
    held = [run["proof_ms"][name][v] for name in (NEAR, *far) for v in first]
    figures["proof_ms_p50"], figures["proof_ms_p99"] = median(held), _p99(held)
    figures["publish_seconds"] = median(row["publish_s"] for row in run["versions"])
    figures["changed_share"] = mean(row["changed"] for row in run["versions"])
    for name, pool, line in (
        ("late_join", JOINER, down["join"][FAR]),
        ("late_join_relayed", LATE_RELAYED, down["join_relayed"][RELAYED]),
    ):
        last = run["attestations"][pool][-1]
        figures[f"{name}_bytes_over_full"] = last["bytes_fetched"] / full
        figures[f"{name}_line_bytes_over_full"] = line / full
        figures[f"{name}_stage_seconds"] = last["stage_s"]
    figures["beside_relay_active_seconds_direct"] = median(_seconds(run, FAR, later))
    figures["beside_relay_active_seconds_relayed"] = median(
        second for name in PAIR for second in _seconds(run, name, later)
    )
    figures["line_bytes_two_direct_over_two_relayed"] = (
        2 * down["beside"][FAR] / down["beside"][RELAYED]
    )
    return figures


def _seconds(run: dict[str, Any], pool: str, versions: set[int]) -> list[float]:
    ended = {row["version"]: row["ended"] for row in run["versions"]}
    proofs = (proof for proof in run["attestations"][pool] if proof["version"] in versions)
    return [proof["activated_at"] - ended[proof["version"]] for proof in proofs]


def _pauses(run: dict[str, Any], pool: str, versions: set[int]) -> list[float]:
    return [p["pause_ms"] for p in run["attestations"][pool] if p["version"] in versions]


def _p99(values: Sequence[float]) -> float:
    return float(np.percentile(values, 99))
