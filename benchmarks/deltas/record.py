"""One short RL run at one learning rate, of which some steps are kept as deltas.

    python -m deltas.record PLAN FOLDER STEP [STEP ...]

    sample with our engine ──► grade ──► step of our trainer ──► bf16 weights before and after

The same loop as the synchronous mode of `grpo.our_side`, from the base checkpoint. Step 0 is the
first one of AdamW: every weight that has a gradient moves by the learning rate.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from common.machine import versions
from common.side import report
from grpo.our_side import open_trainer
from grpo.plan import Plan
from grpo.sampling import Sampling, open_engine

from deltas.delta import Delta
from tradewind.weights.tensors import TensorSet


def record(plan: Plan, folder: Path, kept: set[int]) -> None:
    """Writes the deltas of the steps in `kept`; reports a `step` event for each step."""
    engine = open_engine(plan, steps_in_flight=1)
    sampling, trainer = Sampling(plan, engine), open_trainer(plan, max_staleness=0)
    weights = trainer.learner.weights()
    for step in range(plan.steps):
        begun = time.perf_counter()
        sampling.submit(step)
        batch = sampling.take(step)
        trainer.step(batch.samples, version=step, number=step)
        old, weights = weights, trainer.learner.weights()
        name = f"{rate_name(plan.learning_rate)}_step{step}"
        delta = Delta(name, TensorSet(old), TensorSet(weights))
        if step in kept:
            delta.write(folder)
        engine.swap(weights, step + 1)
        report(
            "step",
            delta=delta.name,
            seconds=time.perf_counter() - begun,
            reward=batch.reward,
            tokens=batch.tokens,
            changed=delta.changed() / delta.weights(),
        )
    engine.stop()


def rate_name(rate: float) -> str:
    """`lr5e-6`, without the zero of `5e-06`."""
    return f"lr{rate:.0e}".replace("e-0", "e-")


def main() -> None:
    plan_file, folder, *steps = sys.argv[1:]
    plan = Plan.read(Path(plan_file))
    torch.set_num_threads(plan.threads)
    report("versions", versions=versions("torch", "transformers", "numpy", "tradewind"))
    record(plan, Path(folder), {int(step) for step in steps})


if __name__ == "__main__":
    main()
