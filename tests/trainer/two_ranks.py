"""Run by torchrun, and once without: what one rank and two do must be the same.

The first rank writes what it has to files. Nothing may gather a tensor: `full_tensor` is taken
away from all of torch.
"""

import json
import sys
from pathlib import Path

import numpy as np
import tiny
import torch
from torch.distributed.tensor import DTensor

from tradewind.ledger.ledger import Ledger
from tradewind.trainer import checkpoint
from tradewind.trainer.bits import bits_of
from tradewind.trainer.config import TrainerConfig
from tradewind.trainer.crew import Crew
from tradewind.trainer.learner import Learner
from tradewind.trainer.loop import train
from tradewind.trainer.policy import Policy
from tradewind.trainer.ranks import Ranks
from tradewind.trainer.rehearsal import Rehearsal
from tradewind.trainer.run import Run
from tradewind.trainer.step import Trainer
from tradewind.types import TradewindError, UserError
from tradewind.types.returned import ReturnOrder
from tradewind.weights.bucket import Bucket
from tradewind.weights.checkpoint import read_folder
from tradewind.weights.digest import root
from tradewind.weights.follow import Follower
from tradewind.weights.publish import Publisher
from tradewind.weights.state import State

CONFIG = TrainerConfig(
    lr=1e-2, token_budget=25, loss="reinforce", rehearsal_rows=3, rehearsal_length=16
)
DOCUMENTS = [[n, n + 1, n + 2, 2] for n in range(3, 40)]
WIDE = {"hidden_size": 72, "vocab_size": 1000}
"""The embedding has more than two blocks, and no end of a rank's rows is one of a block."""
RUN = {"groups_per_step": 2, "max_staleness": 9, "checkpoint_every": 2, "dtype": "fp32", "lr": 1e-2}


def crew_of(folder, ranks, bucket):
    learner = Learner(Policy.wrap(tiny.tiny_model(**WIDE), torch.float32), CONFIG, ranks)
    return Crew(learner, folder, bucket, Trainer(learner, CONFIG, Rehearsal(DOCUMENTS, CONFIG)))


def goal_bits():
    """Weights that no step makes: every value another one, but for one tensor."""
    model = tiny.tiny_model(5, **WIDE)
    named = {name: bits_of(parameter.bfloat16()) for name, parameter in model.named_parameters()}
    first = next(iter(tiny.tiny_model(**WIDE).named_parameters()))
    return named | {first[0]: bits_of(first[1].bfloat16())}


class Publishing:
    """The first rank's part of a history of versions, which a pool follows."""

    def __init__(self, crew, bucket):
        self.crew, self.bucket = crew, bucket
        self.publisher = Publisher(bucket, "tiny")
        model = tiny.tiny_model(**WIDE)
        self.base = {n: bits_of(p.bfloat16()) for n, p in model.named_parameters()}
        self.versions = [self.publisher.publish(0, None, {}, self.base, "base")]
        self.publisher.announce(self.versions[0])
        self.leaves = crew.begin({})
        assert root(self.leaves) == self.versions[0].state_id == State.of(0, self.base).state_id
        self.follower = Follower(bucket, self.base, run_id="tiny")

    def __call__(self, save=None):
        """Publish what is in memory; what a pool has then."""
        number = len(self.versions)
        self.crew.publish(number)
        leaves, delta = self.crew.upload()
        version = self.publisher.seal(
            self.versions[-1], self.leaves, leaves, delta, "rl", number, ()
        )
        if save is not None:
            self.crew.save("rl", save, 2)
        self.publisher.announce(version)
        self.crew.conclude(None)
        self.versions.append(version)
        self.leaves = leaves
        self.follower.commit(self.follower.stage(number))
        assert State.of(0, self.follower.mirror).state_id == version.state_id
        return {name: array.copy() for name, array in self.follower.mirror.items()}, delta


def drive(crew, publish):
    """Two steps, a checkpoint between them, a detour, back to the checkpoint, step two again."""
    first = crew.step(tiny.make_samples(0), 0, 0)
    start, delta = publish(save=1)
    assert len(delta.frames) == crew.learner.ranks.world
    second = crew.step(tiny.make_samples(1), 0, 1)
    end, _ = publish()
    probes = crew.probe([(50, 3, 3), (4, 90, 7)])  # a pass without gradients, then other weights
    assert crew.adopt(start) > 0
    crew.load("rl", 1)
    again, _ = publish()
    assert all((again[name] == start[name]).all() for name in start)
    crew.step(tiny.make_samples(1), 0, 1)
    repeated, _ = publish()
    assert all((repeated[name] == end[name]).all() for name in end)
    # Filtering left one sample, so one micro-batch for all ranks (verl PR#5228: NCCL hangs).
    samples = tiny.make_samples(2)
    flat = [sample.model_copy(update={"advantage": 0.0}) for sample in samples[1:]]
    third = crew.step([samples[0], *flat], 0, 2)
    assert third["trainer/samples/zero_advantage"] == len(samples) - 1
    metrics = {f"{n}.{k}": v for n, m in enumerate((first, second, third)) for k, v in m.items()}
    metrics |= {f"probe.{p.ids}.{i}": x for p in probes for i, x in enumerate(p.logprobs)}
    goal = goal_bits()
    crew.adopt(goal)
    reached, _ = publish()
    assert all((reached[name] == goal[name]).all() for name in goal)
    _, delta = publish()
    assert delta.frames == () and publish.versions[-1].state_id == publish.versions[-2].state_id
    (metrics["goal"],) = {version.state_id for version in publish.versions[-2:]}
    return end, metrics


def runs(folder, ranks):
    """The trainer itself: two steps; a third that the last rank cannot upload; back to version 1,
    and the third again.
    """
    run = Run(folder / f"run-{ranks.world}", folder / "model", "tiny")
    train(TrainerConfig(**RUN, steps=2), run)
    put = Bucket.put_new

    def full(bucket, key, data):
        if ranks.rank == ranks.world - 1 and key.startswith("frames/"):
            raise UserError("the bucket cannot be written", fix="make room")
        put(bucket, key, data)

    Bucket.put_new = full
    try:
        train(TrainerConfig(**RUN, steps=3), run)
    except TradewindError as error:
        if ranks.first:  # the other one waits for a command; torchrun would have ended it
            ranks.broadcast(json.dumps({"do": "dismiss"}))
        assert "the bucket cannot be written" in str(error), error
    else:
        raise AssertionError("a version is announced of which a part is missing")
    finally:
        Bucket.put_new = put
    if ranks.first:
        ledger = Ledger.open(run.workspace / "ledger.sqlite")
        assert ledger.last_step().step == 1 and ledger.audit() == []
        ledger.ask_return(ReturnOrder(back_to=1, who="ana", why="for the test", at=1.0))
        ledger.resume_training(2.0, "ana")
        ledger.close()
    train(TrainerConfig(**RUN, steps=3), run)


def check_run(folder, ranks):
    workspace = folder / f"run-{ranks.world}"
    ledger = Ledger.open(workspace / "ledger.sqlite")
    assert ledger.audit() == [] and [s.step for s in ledger.steps()] == [0, 1, 2]
    assert "replay.diverged" not in [event.kind for event in ledger.events()]
    bucket = Bucket.open((workspace / "bucket").as_uri())
    follower = Follower(bucket, read_folder(folder / "model"), run_id="tiny")
    states = [version.state_id for version in ledger.versions()]
    assert states[3] == states[1] and len(set(states)) == 4, "it went back"
    staged = follower.stage(4)
    assert staged.state_id == states[4]
    assert staged.objects == 2 and bucket.list("shortcuts/"), "a late pool comes by a shortcut"
    ledger.close()


def forbidden(*_, **__):
    raise AssertionError("somebody gathers a tensor")


def main(folder):
    torch.set_num_threads(1)
    DTensor.full_tensor = forbidden
    ranks = Ranks.join()
    bucket = Bucket.open((folder / f"bucket-{ranks.world}").as_uri())
    crew = crew_of(folder / f"checkpoints-{ranks.world}", ranks, bucket)
    if ranks.first:
        weights, metrics = drive(crew, Publishing(crew, bucket))
        crew.dismiss()
        np.savez(folder / f"world-{ranks.world}.npz", **weights)
        (folder / f"world-{ranks.world}.txt").write_text(repr(metrics))
        assert checkpoint.found(folder / f"checkpoints-{ranks.world}", "rl") == [1]
    else:
        crew.follow(60.0)
    if ranks.world > 1:
        runs(folder, ranks)
        if ranks.first:
            check_run(folder, ranks)
    ranks.leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
