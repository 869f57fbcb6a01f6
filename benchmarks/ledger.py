"""How many rollouts a second the controller can lease out and take back, over HTTP.

    python benchmarks/ledger.py [--quick] [--json FILE] [--workers N] [--seconds S]

    this process                           controller (a process)        ledger
    N workers ── POST /v1/leases ────────► LeaseQueue ──► lease_next ──► SQLite file, then
              ── POST .../outcome ───────► Routes ──────► finish ──────► PostgreSQL by a socket

One cycle is a lease and its outcome, each an HTTP request on a kept connection and each a durable
transaction (`ledger/database.py` says how durable). Groups of eight wait from the beginning, the
controller's rounds go on beside. PostgreSQL is the system's own server, with its default settings;
where there is none its figure is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "src")]

from common import postgres  # noqa: E402
from common.figures import write_figures  # noqa: E402
from common.http import Connection  # noqa: E402
from common.machine import versions  # noqa: E402

from tradewind.ledger.ledger import Ledger  # noqa: E402
from tradewind.types import Task, WeightVersion  # noqa: E402

GROUP, WARM_S = 8, 1.0
KEYS = {f"TRADEWIND_{name}_KEY": name.lower() for name in ("WORKER", "POOL", "ADMIN")}


@dataclass
class Load:
    """What the workers saw."""

    lease_s: list[float] = field(default_factory=list)
    outcome_s: list[float] = field(default_factory=list)
    cycles: int = 0


def fill(url: str, bucket: str, groups: int) -> None:
    """A run in which so many training groups wait for a worker."""
    ledger = Ledger.open(url, bucket)
    ledger.create_run({"run_id": "bench", "seed": 1})
    ledger.add_tasks(
        Task(task_id=f"t{n:04d}", kind="k", split="train", input={"q": "?" * 200}, reference={})
        for n in range(64)
    )
    base = {"version": 0, "state_id": "s", "parent_state_id": None, "manifest": "m"}
    ledger.commit_version(WeightVersion(**base, stage="base", bytes_shipped=0, bytes_full=1))
    for _ in range(groups):
        ledger.open_training_group(GROUP)
    ledger.set_meta("training_open", True)
    ledger.close()


@contextlib.contextmanager
def controller(url: str, scratch: Path, running: int) -> Iterator[int]:
    """A controller on this ledger; its port."""
    config = scratch / "controller.json"
    config.write_text(json.dumps({"port": 0, "ledger": url, "max_running": running}))
    argv = [sys.executable, "-m", "tradewind.controller", "--config", str(config)]
    env = {**os.environ, **KEYS, "PYTHONPATH": str(ROOT / "src")}
    log = scratch / "controller.log"
    with log.open("wb") as file:
        process = subprocess.Popen(argv, env=env, stdout=file, stderr=file, cwd=scratch)
    try:
        deadline = time.monotonic() + 60
        while "ready at http://" not in log.read_text():
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        yield int(log.read_text().partition("ready at http://127.0.0.1:")[2].split()[0])
    finally:
        process.terminate()
        process.wait(30)


async def work(port: int, name: str, until: float, load: Load) -> None:
    """One worker: lease, report, again."""
    line = await Connection.open(port)
    outcome = {"status": "completed", "artefacts": {"text": "x" * 200}}
    while time.perf_counter() < until:
        asked = time.perf_counter()
        status, lease = await line.post("/v1/leases", {"worker": name, "wait_s": 5}, "worker")
        assert status == 200, (status, lease)
        leased = time.perf_counter()
        path = f"/v1/rollouts/{lease['rollout_id']}/outcome"
        status, said = await line.post(path, outcome, lease["result_key"])
        assert status == 200, (status, said)
        load.cycles += 1
        load.lease_s.append(leased - asked)
        load.outcome_s.append(time.perf_counter() - leased)
    line.close()


async def drive(port: int, workers: int, seconds: float) -> tuple[float, Load]:
    """Cycles per second after a second of warming up."""
    until = time.perf_counter() + WARM_S + seconds
    load = Load()
    tasks = [asyncio.create_task(work(port, f"w{n}", until, load)) for n in range(workers)]
    await asyncio.sleep(WARM_S)
    before, began = load.cycles, time.perf_counter()
    await asyncio.gather(*tasks)
    return (load.cycles - before) / (time.perf_counter() - began), load


def measure(url: str, args: argparse.Namespace, scratch: Path) -> tuple[float, dict[str, Any]]:
    scratch.mkdir()
    fill(url, (scratch / "bucket").as_uri(), args.groups)
    with controller(url, scratch, running=2 * args.workers) as port:
        rate, load = asyncio.run(drive(port, args.workers, args.seconds))
    about = {"cycles": load.cycles}
    for name, times in (("lease", load.lease_s), ("outcome", load.outcome_s)):
        ordered = sorted(times)
        about[f"{name}_ms_p50"] = round(1e3 * statistics.median(ordered), 2)
        about[f"{name}_ms_p99"] = round(1e3 * ordered[int(0.99 * len(ordered))], 2)
    return rate, about


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="three seconds each")
    parser.add_argument("--json", type=Path, help="write the record here")
    parser.add_argument("--workers", type=int, default=32, help="at the same time")
    parser.add_argument("--seconds", type=float, help="for each database")
    args = parser.parse_args()
    args.seconds = args.seconds or (3.0 if args.quick else 20.0)
    args.groups = int(100 + args.seconds * 600 / GROUP)
    figures, details = {}, {"workers": args.workers, "seconds": args.seconds}
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        rate, details["sqlite"] = measure(str(scratch / "l.sqlite"), args, scratch / "sqlite")
        figures["lease_cycles_s_sqlite"] = rate
        if postgres.programs() is None:
            print(postgres.MISSING)
        else:
            with postgres.server() as server:
                url = postgres.new_database(server)
                rate, details["postgres"] = measure(url, args, scratch / "postgres")
            figures["lease_cycles_s_postgres"] = rate
    print(json.dumps(details))
    named = versions("tradewind", "sqlalchemy", "psycopg", "uvicorn", "starlette")
    write_figures(args.json, figures, versions=named, details=details)


if __name__ == "__main__":
    main()
