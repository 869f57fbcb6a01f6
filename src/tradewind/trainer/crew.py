"""All ranks do as the first one says.

    rank 0      the loop: ledger, bucket, decisions ──► command ──► do it
    rank 1..    follow():                               command ──► do it
                _assist(), a thread:       (beside)     upload, then save, until told how it ended

With one rank a command is a plain call.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from pydantic import TypeAdapter

from tradewind.trainer import checkpoint
from tradewind.trainer.behind import Behind
from tradewind.trainer.learner import Bits, Learner
from tradewind.trainer.share import Share
from tradewind.trainer.step import Metrics, Trainer
from tradewind.types import Sample, TradewindError
from tradewind.weights.bucket import Bucket
from tradewind.weights.digest import Leaf
from tradewind.weights.probe import Ids, Probe
from tradewind.weights.tensors import TensorSet
from tradewind.weights.upload import Uploaded

SAMPLES = TypeAdapter(list[Sample])


class Crew:
    """The collective operations of a trainer. `trainer` is None while mid-training.

    `publish` and what follows it up to `conclude` may run beside a step, on all ranks.
    """

    def __init__(
        self, learner: Learner, checkpoints: Path, bucket: Bucket, trainer: Trainer | None = None
    ) -> None:
        self.learner = learner
        self.trainer = trainer
        self.checkpoints = checkpoints
        self._bucket = bucket
        self._beside = learner.ranks.beside()
        self._share = Share(learner, self._beside, bucket, {})

    def step(self, samples: Sequence[Sample], version: int, number: int) -> Metrics:
        """`Trainer.step` on all ranks."""
        assert self.trainer is not None
        if self.alone:
            return self.trainer.step(samples, version=version, number=number)
        text = SAMPLES.dump_json(list(samples)).decode()
        self._tell("step", version=version, number=number)
        self.learner.ranks.broadcast(text)
        return self.trainer.step(samples, version=version, number=number)

    def probe(self, sequences: Sequence[Ids]) -> tuple[Probe, ...]:
        """Log-probabilities of `sequences` by the weights in memory.

        With one rank it may run beside a step; with several it is part of the steps' order.
        """
        self._tell("probe", sequences=sequences)
        return self.learner.probe(sequences)

    @property
    def alone(self) -> bool:
        """Whether this is the only rank."""
        return self.learner.ranks.world == 1

    @property
    def vocabulary(self) -> int:
        """Ids that the model can read."""
        return int(self.learner.policy.inner.config.vocab_size)

    @property
    def names(self) -> list[str]:
        """Of all trained parameters."""
        return self.learner.masters.names

    def begin(self, twins: Mapping[str, str]) -> dict[str, Leaf]:
        """See `Share`: the weights in memory are what is published; their leaves."""
        self._tell("begin", twins=dict(twins))
        return self._begin(twins)

    def publish(self, number: int) -> None:
        """The weights of step `number` are about to be published: other ranks assist behind."""
        self._tell("publish", number=number)

    def upload(self) -> tuple[dict[str, Leaf], Uploaded]:
        """Every rank uploads its rows; see `Share.upload`."""
        return self._share.upload()

    def save(self, stage: str, steps_done: int, keep: int) -> None:
        """Write a checkpoint of all ranks."""
        self._tell_beside("save", stage=stage, steps_done=steps_done, keep=keep)
        self._save(stage=stage, steps_done=steps_done, keep=keep)

    def conclude(self, failure: str | None) -> None:
        """The publication is over on all ranks; without a failure its weights are the parent."""
        self._tell_beside("conclude", failure=failure)
        if failure is None:
            self._share.accept()

    def tensors(self) -> TensorSet | None:
        """What was published last, if this rank holds all of it."""
        return self._share.tensors()

    def adopt(self, published: Bits, *, afresh: bool = False) -> int:
        """Take over published weights, `afresh` without a trace of those before; how many values of
        the first rank differed.
        """
        self._tell("adopt", afresh=afresh)
        return self.learner.adopt(self._spread(published), afresh=afresh)

    def load(self, stage: str, steps_done: int) -> None:
        """Take over a checkpoint on all ranks."""
        self._tell("load", stage=stage, steps_done=steps_done)
        checkpoint.load(self.checkpoints, stage, steps_done, self.learner)

    def dismiss(self) -> None:
        """The other ranks return from `follow`."""
        self._tell("dismiss")

    def follow(self, publish_deadline_s: float) -> None:
        """Be one of the other ranks until dismissed."""
        ranks = self.learner.ranks
        with Behind(publish_deadline_s) as behind:
            self.learner.masters.release = behind.settle
            while (command := json.loads(ranks.broadcast("")))["do"] != "dismiss":
                if (do := command.pop("do")) == "publish":
                    behind.start(command["number"], self._assist)
                else:
                    self._obey(do, command)

    def _obey(self, do: str, values: dict[str, Any]) -> None:
        match do:
            case "step":
                samples = SAMPLES.validate_json(self.learner.ranks.broadcast(""))
                assert self.trainer is not None
                self.trainer.step(samples, **values)
            case "probe":
                self.learner.probe([tuple(ids) for ids in values["sequences"]])
            case "begin":
                self._begin(**values)
            case "adopt":
                self.learner.adopt(self._spread({}), **values)
            case "load":
                checkpoint.load(folder=self.checkpoints, learner=self.learner, **values)

    def _assist(self) -> None:
        """Another rank's part of a publication."""
        failed: TradewindError | None = None
        try:
            self._share.upload()
        except TradewindError as error:
            failed = error  # the first rank has been told, and tells all how it ends
        while (command := json.loads(self._beside.broadcast(""))).pop("do") == "save":
            self._save(**command)
        if failed is not None:
            raise failed
        if command["failure"] is not None:
            raise TradewindError(command["failure"])
        self._share.accept()

    def _begin(self, twins: Mapping[str, str]) -> dict[str, Leaf]:
        self._share = Share(self.learner, self._beside, self._bucket, twins)
        return self._share.begin()

    def _save(self, stage: str, steps_done: int, keep: int) -> None:
        masters, ranks = self.learner.masters, self._beside
        checkpoint.save(self.checkpoints, stage, steps_done, masters, ranks, keep)

    def _tell(self, do: str, **values: Any) -> None:
        if not self.alone:
            self.learner.ranks.broadcast(json.dumps({"do": do, **values}))

    def _tell_beside(self, do: str, **values: Any) -> None:
        if not self.alone:
            self._beside.broadcast(json.dumps({"do": do, **values}))

    def _spread(self, published: Bits) -> Bits:
        """The first rank's weights, on every rank."""
        if self.alone:
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
