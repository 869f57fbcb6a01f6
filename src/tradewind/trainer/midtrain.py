"""Mid-training: next-token loss on the product's documents, then one published version.

    consumes     corpus (JSON lines), the model folder, checkpoints
    produces     one weight version of stage "midtrain" (bucket, ledger), metrics/midtrain.jsonl
    waits for    the place of a dead trainer        unblocked by its time to live

    rows ─► step ─► held-out loss now and then ─► ... ─► upload ─► commit ─► announce

It stops where it was killed and goes on from its newest checkpoint; the order of rows depends on
the seed alone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tradewind.ledger.ledger import Ledger
from tradewind.trainer import checkpoint
from tradewind.trainer.config import MidtrainConfig
from tradewind.trainer.corpus import Corpus, Row, pack, read_corpus, row_samples, rows
from tradewind.trainer.crew import Crew
from tradewind.trainer.learner import Learner
from tradewind.trainer.next_token import next_token
from tradewind.trainer.progress import Line, MetricsFile
from tradewind.trainer.pulse import Pulse
from tradewind.trainer.ranks import Ranks
from tradewind.trainer.run import Run, open_run
from tradewind.trainer.schedule import rate
from tradewind.types import Conflict, Sample, UserError

STAGE = "midtrain"
LOG = logging.getLogger(__name__)


def midtrain(config: MidtrainConfig, run: Run, corpus_file: Path) -> None:
    """Train `config.steps` steps and publish the result as the version after the base.

    Does nothing but announce it again if the run already has a mid-trained version.

    Raises:
        UserError: bad corpus or model, or numbers that are not finite.
        Conflict: another trainer lives on this run, or RL has already begun.
    """
    ranks = Ranks.join()
    if ranks.world > 1:
        raise UserError(
            "mid-training runs as one rank", value=ranks.world, fix="start it without torchrun"
        )
    corpus = read_corpus(corpus_file, run.model)
    with open_run(run, config) as (ledger, lineage, pulse):
        if any(version.stage == STAGE for version in ledger.versions()):
            return
        if lineage.version.version:
            raise Conflict(
                f"RL has begun (version {lineage.version.version}), too late to mid-train"
            )
        learner = Learner.open(run.model, config, ranks)
        crew = Crew(learner, run.checkpoints, run.open_bucket())
        lineage.resume(crew.begin(lineage.twins(crew.names)), crew.tensors())
        course = Course(config, crew, corpus, ledger, pulse, MetricsFile(run.workspace, STAGE))
        for number, batch in course.resume():
            course.step(number, batch)
            course.save(number + 1)
        probes = crew.probe(lineage.probe_ids(crew.vocabulary))
        leaves, delta = crew.upload()
        version = lineage.seal(leaves, delta, STAGE, config.steps, probes)
        ledger.commit_version(version)
        lineage.announce(version, leaves, crew.tensors())
        checkpoint.discard(run.checkpoints, STAGE)


@dataclass
class Course:
    """What mid-training needs from step to step."""

    config: MidtrainConfig
    crew: Crew
    corpus: Corpus
    ledger: Ledger
    pulse: Pulse
    file: MetricsFile

    def resume(self) -> Iterator[tuple[int, list[Row]]]:
        """(number, rows) of every step that is still to be done."""
        saved = checkpoint.found(self.crew.checkpoints, STAGE)
        done = saved[-1] if saved else 0
        if saved:
            self.crew.load(STAGE, done)
        self.file.restart(line for line in self.file.read() if line["step"] <= done)
        if not done:
            self.report({"step": 0, "heldout": self.heldout()})
        size = self.config.rows_per_step
        stream = rows(self.corpus.train, self.config.sequence_length, self.config.seed)
        stream = islice(stream, done * size, None)
        for number in range(done, self.config.steps):
            yield number, list(islice(stream, size))

    def step(self, number: int, batch: list[Row]) -> None:
        """One update, its line in the metrics file, and the held-out loss when it is due."""
        self.pulse.doing(f"mid-training step {number + 1} of {self.config.steps}")
        began = time.monotonic()
        samples = self.samples(batch)
        sums = self.crew.learner.backward(samples, 0, next_token, number)
        lr = rate(self.config, number)
        norm = self.crew.learner.update(lr, 1.0 / max(1.0, sums["tokens"]), number)
        seconds = time.monotonic() - began
        tokens = sum(len(piece) for row in batch for piece in row)
        due = (number + 1) % self.config.heldout_every == 0 or number + 1 == self.config.steps
        self.report(
            {
                "step": number + 1,
                "loss": sums["loss"] / max(1.0, sums["tokens"]),
                "heldout": self.heldout() if due else None,
                "lr": lr,
                "gradient_norm": norm,
                "tokens": tokens,
                "tokens_per_second": tokens / seconds,
                "seconds": seconds,
            }
        )

    def save(self, done: int) -> None:
        """Write a checkpoint when it is due."""
        if done % self.config.checkpoint_every == 0 or done == self.config.steps:
            self.crew.save(STAGE, done, self.config.keep_checkpoints)

    def heldout(self) -> float | None:
        """Loss in nats per token on the held-out documents; None if there are none."""
        packed = pack(self.corpus.heldout, self.config.sequence_length)
        found = list(islice(packed, self.config.heldout_rows))
        samples = self.samples(found)
        if not samples:
            return None
        self.pulse.doing("held-out loss")
        sums = self.crew.learner.measure(samples, 0, next_token)
        return sums["loss"] / sums["tokens"]

    def samples(self, batch: list[Row]) -> list[Sample]:
        """All rows as samples."""
        isolate = self.config.isolate_documents
        return [s for i, row in enumerate(batch) for s in row_samples(row, isolate, f"row{i}")]

    def report(self, line: Line) -> None:
        """One line in the metrics file; the figures of the live view in the ledger."""
        line = {"stage": STAGE, "at": time.time(), **line}
        self.file.append(line)
        self.ledger.set_meta("midtrain_step", line["step"])
        heldout = [[x["step"], x["heldout"]] for x in self.file.read() if x.get("heldout")]
        self.ledger.set_meta("midtrain_heldout", heldout)
        LOG.info(
            "mid-training step %d: loss %s, held-out loss %s",
            line["step"],
            line.get("loss"),
            line.get("heldout"),
        )
