"""Run by torchrun: two steps of the tiny model; the first rank writes what it has to a file."""

import sys
from pathlib import Path

import numpy as np
import tiny
import torch

from tradewind.trainer import checkpoint
from tradewind.trainer.config import TrainerConfig
from tradewind.trainer.crew import Crew
from tradewind.trainer.learner import Learner
from tradewind.trainer.policy import Policy
from tradewind.trainer.ranks import Ranks
from tradewind.trainer.step import Trainer

CONFIG = TrainerConfig(lr=1e-2, token_budget=25, loss="reinforce")


def crew_of(folder, ranks, seed=0):
    learner = Learner(Policy.wrap(tiny.tiny_model(seed), torch.float32), CONFIG, ranks)
    return Crew(learner, folder, Trainer(learner, CONFIG))


def drive(folder, crew):
    """Two steps, a checkpoint between them, a detour, back to the checkpoint, step two again."""
    first = crew.step(tiny.make_samples(0), 0, 0)
    crew.save("rl", 1, 2)
    start = crew.weights()
    second = crew.step(tiny.make_samples(1), 0, 1)
    end = crew.weights()
    probes = crew.probe([(50, 3, 3), (4, 90, 7)])  # a pass without gradients, then other weights
    assert crew.adopt(start) > 0
    crew.load("rl", 1)
    again = crew.weights()
    assert all((again[name] == start[name]).all() for name in start)
    crew.step(tiny.make_samples(1), 0, 1)
    repeated = crew.weights()
    assert all((repeated[name] == end[name]).all() for name in end)
    metrics = {f"{n}.{k}": v for n, m in enumerate((first, second)) for k, v in m.items()}
    metrics |= {f"probe.{p.ids}.{i}": x for p in probes for i, x in enumerate(p.logprobs)}
    return end, metrics


def main(folder):
    torch.set_num_threads(1)
    ranks = Ranks.join()
    crew = crew_of(folder, ranks)
    if not ranks.first:
        crew.follow()
        return
    weights, metrics = drive(folder, crew)
    crew.dismiss()
    np.savez(folder / f"world-{ranks.world}.npz", **weights)
    (folder / f"world-{ranks.world}.txt").write_text(repr(metrics))
    assert checkpoint.found(folder, "rl") == [1]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
