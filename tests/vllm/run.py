"""A run that the pool follows: a bucket, and a trainer that publishes into it."""

from __future__ import annotations

from pathlib import Path

from smallmodel import VOCAB, stepped

from tradewind.pool.engines.embedded.engine import EmbeddedEngine
from tradewind.types import WeightVersion
from tradewind.weights.bucket import Bucket
from tradewind.weights.probe import Probe, draw_ids
from tradewind.weights.publish import Publisher
from tradewind.weights.tensors import Array


class Run:
    """Version 0 is announced; the embedded engine plays the trainer."""

    def __init__(self, folder: Path, checkpoint: Path, base: dict[str, Array]) -> None:
        self.url = f"file://{folder}"
        self.publisher = Publisher(Bucket.open(self.url), "desk")
        self.trainer = EmbeddedEngine.open(checkpoint, dtype="float32", threads=1)
        self.trainer.start()
        self.versions = [self.publisher.publish(0, None, {}, base, "base")]
        self.publisher.announce(self.versions[0])
        self.tensors = base

    def publish(self) -> WeightVersion:
        """The next version; the trainer is at it."""
        number = len(self.versions)
        after = stepped(self.tensors, number)
        self.trainer.swap(after, number)
        ids = draw_ids(VOCAB, "desk")
        scores = self.trainer.score(ids)
        probes = tuple(Probe.of(i, p) for i, p in zip(ids, scores, strict=True))
        version = self.publisher.publish(
            number, self.versions[-1], self.tensors, after, "rl", step=number, probes=probes
        )
        self.publisher.announce(version)
        self.versions.append(version)
        self.tensors = after
        return version
