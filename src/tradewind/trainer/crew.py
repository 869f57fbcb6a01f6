"""All ranks do as the first one says.

    rank 0      the loop: ledger, bucket, decisions ──► command ──► do it
    rank 1..    follow():                               command ──► do it

With one rank a command is a plain call.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from pydantic import TypeAdapter

from tradewind.trainer import checkpoint
from tradewind.trainer.learner import Bits, Learner
from tradewind.trainer.step import Metrics, Trainer
from tradewind.types import Sample
from tradewind.weights.probe import Ids, Probe

SAMPLES = TypeAdapter(list[Sample])


class Crew:
    """The collective operations of a trainer. `trainer` is None while mid-training."""

    def __init__(self, learner: Learner, checkpoints: Path, trainer: Trainer | None = None) -> None:
        self.learner = learner
        self.trainer = trainer
        self.checkpoints = checkpoints

    def step(self, samples: Sequence[Sample], version: int, number: int) -> Metrics:
        """`Trainer.step` on all ranks."""
        assert self.trainer is not None
        if self.learner.ranks.world > 1:
            text = SAMPLES.dump_json(list(samples)).decode()
            self._tell("step", version=version, number=number)
            self.learner.ranks.broadcast(text)
        return self.trainer.step(samples, version=version, number=number)

    def weights(self) -> Bits:
        """All bf16 weights, on the first rank."""
        self._tell("weights")
        return self.learner.weights()

    def probe(self, sequences: Sequence[Ids]) -> tuple[Probe, ...]:
        """Log-probabilities of `sequences` by the weights in memory."""
        self._tell("probe", sequences=sequences)
        return self.learner.probe(sequences)

    @property
    def vocabulary(self) -> int:
        """Ids that the model can read."""
        return int(self.learner.policy.inner.config.vocab_size)

    def adopt(self, published: Bits) -> int:
        """Take over published weights; how many values of the first rank differed."""
        self._tell("adopt")
        return self.learner.adopt(self._spread(published))

    def save(self, stage: str, steps_done: int, keep: int) -> None:
        """Write a checkpoint of all ranks."""
        self._tell("save", stage=stage, steps_done=steps_done, keep=keep)
        checkpoint.save(self.checkpoints, stage, steps_done, self.learner, keep)

    def load(self, stage: str, steps_done: int) -> None:
        """Take over a checkpoint on all ranks."""
        self._tell("load", stage=stage, steps_done=steps_done)
        checkpoint.load(self.checkpoints, stage, steps_done, self.learner)

    def dismiss(self) -> None:
        """The other ranks return from `follow`."""
        self._tell("dismiss")

    def follow(self) -> None:
        """Be one of the other ranks until dismissed."""
        ranks = self.learner.ranks
        while (command := json.loads(ranks.broadcast("")))["do"] != "dismiss":
            match command.pop("do"):
                case "step":
                    samples = SAMPLES.validate_json(ranks.broadcast(""))
                    assert self.trainer is not None
                    self.trainer.step(samples, **command)
                case "weights":
                    self.learner.weights()
                case "probe":
                    self.learner.probe([tuple(ids) for ids in command["sequences"]])
                case "adopt":
                    self.learner.adopt(self._spread({}))
                case "save":
                    checkpoint.save(folder=self.checkpoints, learner=self.learner, **command)
                case "load":
                    checkpoint.load(folder=self.checkpoints, learner=self.learner, **command)

    def _tell(self, do: str, **values: Any) -> None:
        if self.learner.ranks.world > 1:
            self.learner.ranks.broadcast(json.dumps({"do": do, **values}))

    def _spread(self, published: Bits) -> Bits:
        """The first rank's weights, on every rank."""
        if self.learner.ranks.world == 1:
            return published
        out = {}
        for name, parameter in self.learner.policy.trained():
            raw = np.zeros(2 * parameter.numel(), np.uint8)
            if self.learner.ranks.first:
                raw = published[name].reshape(-1).view(np.uint8).copy()
            tensor = torch.from_numpy(raw).to(self.learner.ranks.device)
            dist.broadcast(tensor, 0)
            out[name] = tensor.cpu().numpy().view(np.uint16).reshape(parameter.shape)
        return out
