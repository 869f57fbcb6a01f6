"""The sampling process of both modes.

    python -m grpo.sampler PLAN BUCKET_URL LAG

    stdin    a version number a line: announced in the bucket
    stdout   {"ready"}, then a line a batch: {"step", "samples", "reward", "tokens"}; last its peak
    waits    for a version that lets the next batch start, or for rollouts

Batch k may start when version k - LAG is served. A swap happens while rollouts decode.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
from pathlib import Path
from typing import Any

import torch
from common.machine import peak_rss_mb

from grpo.our_side import RUN_ID
from grpo.plan import Plan
from grpo.sampling import DEADLINE_S, Sampling, open_engine
from tradewind.pool.engines.embedded.engine import EmbeddedEngine
from tradewind.weights.bucket import Bucket
from tradewind.weights.checkpoint import read_folder
from tradewind.weights.follow import Follower


class Stream:
    """Serves each announced version, and starts each batch as soon as it may."""

    def __init__(self, plan: Plan, engine: EmbeddedEngine, follower: Follower, lag: int) -> None:
        self._plan, self._engine, self._follower, self._lag = plan, engine, follower, lag
        self.sampling = Sampling(plan, engine)
        self.started: queue.Queue[int] = queue.Queue()
        """Steps whose rollouts have been submitted."""

    def run(self) -> None:
        """Until stdin ends."""
        for step in range(self._lag + 1):
            self._start(step)
        for line in sys.stdin:
            staged = self._follower.stage(int(line))
            self._engine.swap(staged.changed, staged.version)
            self._follower.commit(staged)
            self._start(staged.version + self._lag)

    def _start(self, step: int) -> None:
        if step < self._plan.steps:
            self.sampling.submit(step)
            self.started.put(step)


def say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def main() -> None:
    plan, bucket = Plan.read(Path(sys.argv[1])), Bucket.open(sys.argv[2])
    torch.set_num_threads(plan.threads)
    engine = open_engine(plan, steps_in_flight=1)
    follower = Follower(bucket, dict(read_folder(Path(plan.model))), run_id=RUN_ID)
    stream = Stream(plan, engine, follower, lag=int(sys.argv[3]))
    say(ready=True)
    thread = threading.Thread(target=stream.run, daemon=True)
    thread.start()
    for _ in range(plan.steps):
        step = stream.started.get(timeout=DEADLINE_S)
        batch = stream.sampling.take(step)
        samples = [sample.model_dump() for sample in batch.samples]
        say(step=step, samples=samples, reward=batch.reward, tokens=batch.tokens)
    thread.join(DEADLINE_S)
    engine.stop()
    say(peak_rss_mb=peak_rss_mb())


if __name__ == "__main__":
    main()
