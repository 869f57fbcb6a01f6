"""Our side, in one of its two modes.

    python -m grpo.our_side PLAN sync|async

        sampler       engine decodes batch k+1, k+2 ◄── stage, verify, swap ◄── bucket
                          │ graded samples (JSON lines)                           ▲
                          ▼                                                       │
        trainer       step k ──► publish version k+1 (delta, verified state id) ──┘

Two processes, as in a run: a process that both trained and decoded would have two pools of OpenMP
threads, whose barriers sleep once they are more than the cores. Synchronous means that batch k is
sampled by version k, asynchronous that it may be by version k - `LAG`.

Reports one `step` event a step. A step's seconds run from the end of the step before it; they
include grading and handing the weights over.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch
from common.machine import peak_rss_mb, versions
from common.side import report
from pydantic import TypeAdapter

from grpo.plan import Plan
from grpo.sampling import seconds_since
from tradewind.trainer.config import TrainerConfig
from tradewind.trainer.learner import Learner
from tradewind.trainer.step import Trainer
from tradewind.types import Sample
from tradewind.weights.bucket import Bucket
from tradewind.weights.publish import Publisher

LAG = 1
"""Asynchronous: how many versions the sampler may run ahead of the step being trained."""
RUN_ID = "grpo-vs-trl"
SAMPLES = TypeAdapter(list[Sample])


def open_trainer(plan: Plan, max_staleness: int) -> Trainer:
    """The plan in our words; what it does not name keeps our default."""
    config = TrainerConfig(
        loss="reinforce",
        lr=plan.learning_rate,
        betas=(0.9, 0.999),
        max_staleness=max_staleness,
        threads=plan.threads,
        seed=plan.seed,
    )
    return Trainer(Learner.open(Path(plan.model), config), config)


def run(plan: Plan, plan_file: str, lag: int) -> None:
    """This process trains; a second one samples, up to `lag` versions ahead of it."""
    with tempfile.TemporaryDirectory() as folder:
        bucket = Bucket.open(Path(folder).as_uri())
        publisher = Publisher(bucket, RUN_ID, threads=plan.threads)
        trainer = open_trainer(plan, max_staleness=2 * lag)
        weights = trainer.learner.weights()
        version = publisher.publish(0, None, {}, weights, "base")
        publisher.announce(version)
        sampler = _Sampler(plan_file, bucket.url, lag)
        report("start", rss_mb=peak_rss_mb())
        ended = time.perf_counter()
        for step in range(plan.steps):
            begun = ended
            batch = sampler.next()
            waited = seconds_since(begun)
            samples = SAMPLES.validate_python(batch["samples"])
            metrics = trainer.step(samples, version=step, number=step)
            stepped = time.perf_counter()
            old, weights = weights, trainer.learner.weights()
            version = publisher.publish(step + 1, version, old, weights, "rl", step=step)
            publisher.announce(version)
            sampler.tell(step + 1)
            ended = time.perf_counter()
            report(
                "step",
                step=step,
                seconds=ended - begun,
                **({"waited_s": waited} if lag else {"generate_s": waited}),
                hand_over_s=ended - stepped,
                reward=batch["reward"],
                tokens=batch["tokens"],
                staleness=metrics["trainer/staleness/max"],
                bytes_shipped=version.bytes_shipped,
            )
        sampler_peak = sampler.end()
    peak = peak_rss_mb()
    report("end", peak_rss_mb=peak + sampler_peak, trainer_mb=peak, sampler_mb=sampler_peak)


class _Sampler:
    """The other process, seen from the trainer: JSON lines both ways."""

    def __init__(self, plan_file: str, bucket_url: str, lag: int) -> None:
        command = [sys.executable, "-m", "grpo.sampler", plan_file, bucket_url, str(lag)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.next()["ready"]

    def next(self) -> dict[str, Any]:
        """The next batch; a sampler that ended is an error."""
        assert self._process.stdout is not None
        timer = threading.Timer(600, self._process.kill)
        timer.start()
        line = self._process.stdout.readline()
        timer.cancel()
        if not line:
            raise RuntimeError(f"the sampler ended with {self._process.wait()}")
        fields: dict[str, Any] = json.loads(line)
        return fields

    def tell(self, version: int) -> None:
        """A version was announced."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{version}\n")
        self._process.stdin.flush()

    def end(self) -> float:
        """Its peak memory in MB."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        peak: float = self.next()["peak_rss_mb"]
        self._process.wait(60)
        return peak


def main() -> None:
    plan_file, mode = sys.argv[1:]
    plan = Plan.read(Path(plan_file))
    torch.set_num_threads(plan.threads)
    report("versions", versions=versions("torch", "transformers", "numpy", "tradewind"))
    run(plan, plan_file, lag=0 if mode == "sync" else LAG)


if __name__ == "__main__":
    main()
