"""The trainer process: one optimiser step per turn of the loop, published behind the next one.

    consumes     closed groups (ledger), the model folder, checkpoints
    produces     weight versions (bucket), steps (ledger), metrics/rl.jsonl, checkpoints
    waits for    closed groups                      unblocked by controller, grader, worker
                 a person, while training is paused unblocked by `tradewind trust resume`
                 its last publication, at most one  unblocked by the bucket, or a deadline
                 the place of a dead trainer        unblocked by its time to live

    claim ─► samples ─► forward, backward ─► update ─► probe ─► hand over ─► claim ...
                                               ▲                    │
      nothing in flight before weights change ─┘                    ▼
                     (behind)     upload ─► checkpoint ─► commit ─► announce

A crash before the commit: nothing happened, the groups are claimed again, and nothing of the step
after it was committed. A crash after it: the step stands, the next start replays it from the
ledger's groups and announces it again. So every group is trained into exactly one version (R7).

Before it claims, it heeds an order to go back to an earlier version (`comeback.py`).
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tradewind.algo.samples import samples_of
from tradewind.ledger.ledger import Ledger
from tradewind.trainer.behind import Behind
from tradewind.trainer.comeback import Comeback
from tradewind.trainer.config import TrainerConfig
from tradewind.trainer.crew import Crew
from tradewind.trainer.learner import Learner
from tradewind.trainer.lineage import Lineage
from tradewind.trainer.progress import MetricsFile
from tradewind.trainer.pulse import Pulse
from tradewind.trainer.ranks import Ranks
from tradewind.trainer.rehearsal import Rehearsal
from tradewind.trainer.restore import restore
from tradewind.trainer.run import Run, open_run
from tradewind.trainer.stall import Clock
from tradewind.trainer.step import Metrics, Trainer
from tradewind.types import (
    ClosedGroup,
    RefusedWeights,
    Sample,
    Stalled,
    Step,
    TradewindError,
    UserError,
)
from tradewind.types.trust import Pause
from tradewind.weights.probe import Probe

STAGE = "rl"
LOG = logging.getLogger(__name__)


def train(config: TrainerConfig, run: Run, corpus_file: Path | None = None) -> None:
    """Work until `config.steps` are committed. The corpus is read if steps rehearse some of it.

    Raises:
        UserError: bad input, or numbers that are not finite; nothing of that step is committed.
        Conflict: another trainer lives on this run.
        Stalled: no group closed for `config.wait_deadline_s`, or a publication took longer than
            `config.publish_deadline_s`.
    """
    ranks = Ranks.join()
    learner = Learner.open(run.model, config, ranks)
    rehearsal = Rehearsal.open(corpus_file, run.model, config)
    crew = Crew(learner, run.checkpoints, run.open_bucket(), Trainer(learner, config, rehearsal))
    if not ranks.first:
        crew.follow(config.publish_deadline_s)
        return
    with (
        open_run(run, config) as (ledger, lineage, pulse),
        Behind(config.publish_deadline_s) as behind,
    ):
        file = MetricsFile(run.workspace, STAGE)
        loop = Loop(config, crew, ledger, lineage, pulse, file, behind)
        for number in range(loop.restore(), config.steps):
            groups = loop.claim(number)
            metrics = loop.step(groups, number)
            loop.hand_over(number, groups, metrics)
        loop.heed(config.steps)
        loop.settle()
        crew.dismiss()


@dataclass
class Loop:
    """What one turn of the loop needs."""

    config: TrainerConfig
    crew: Crew
    ledger: Ledger
    lineage: Lineage
    pulse: Pulse
    file: MetricsFile
    behind: Behind
    version: int = -1
    """What the weights in memory are, published or about to be."""
    held: frozenset[str] = frozenset()
    """The groups of the newest step; the ledger calls them closed until it is committed."""
    clock: Clock = field(default_factory=Clock)
    doing: str = "restore"

    def restore(self) -> int:
        """Go back to where the ledger says the run is; returns the number of the next step."""
        self.pulse.doing("restore")
        done = restore(self.crew, self.ledger, self.lineage, self.pulse)
        self.file.restart(line_of(step) for step in self.ledger.steps())
        self.version = self.lineage.version.version
        self.crew.learner.masters.release = self.settle
        self.clock.start()
        return done

    def claim(self, number: int) -> list[ClosedGroup]:
        """Wait for the step's groups; the wait is in the beat and has a deadline.

        While training is paused nothing is claimed, and the deadline is a person's.
        """
        closed, progressed = -1, time.monotonic()
        while True:
            self.heed(number)
            self.doing = f"step {number}"
            paused = self.ledger.paused()
            if paused is None and (groups := self._claimable()):
                return groups
            with self.clock.of("wait"):
                self.behind.check()  # groups may never come if the last version does not
                now_closed = self.ledger.closed(self.held)
                if now_closed != closed or paused is not None:
                    closed, progressed = now_closed, time.monotonic()
                missing, owner = self._missing(number, closed, paused)
                waited = time.monotonic() - progressed
                if paused is None and waited > self.config.wait_deadline_s:
                    raise Stalled(missing, owner=owner, seconds=waited)
                self.pulse.waiting(self.doing, missing, owner)
                time.sleep(self.config.poll_s)

    def _claimable(self) -> list[ClosedGroup]:
        with self.clock.of("read"):
            return self.ledger.claimable(
                self.config.groups_per_step, self.version, self.config.max_staleness, self.held
            )

    def _missing(self, number: int, closed: int, paused: Pause | None) -> tuple[str, str]:
        """What the step waits for, and who can end the wait."""
        if paused is not None:
            return f"a person: {paused.who} has paused training", "you"
        missing = self.config.groups_per_step - closed
        return f"{missing} more closed groups for step {number}", "controller"

    def heed(self, number: int) -> None:
        """Go back to an earlier version before step `number`, if there is an order to."""
        order = self.ledger.return_order()
        if order is None:
            return
        self.settle()  # the step before is the newest that is withdrawn
        self.doing = f"go back to version {order.back_to}"
        self.pulse.doing(self.doing)
        comeback = Comeback(self.crew, self.ledger, self.lineage, order)
        if not comeback.take_over():
            return
        probes = self.probe()
        self.crew.publish(number)
        self.behind.start(number, partial(self.publish_return, comeback, number, probes))
        self.settle()
        self.version = self.lineage.version.version

    def publish_return(self, comeback: Comeback, number: int, probes: tuple[Probe, ...]) -> None:
        """Make a return durable, in the order of a step. Runs behind, where deadlines are."""
        with self._concluded(f"publishes version {self.version + 1}"):
            comeback.publish(number, probes, self.pulse.check)

    def step(self, groups: Sequence[ClosedGroup], number: int) -> Metrics:
        """One update of the weights in memory; before it, the last publication is over."""
        self.pulse.doing(self.doing)
        with self.clock.of("read"):
            samples, excluded = collect(groups)
        with self.clock.of("step"):
            metrics = self.crew.step(samples, self.version, number)
        k3 = metrics.get("trainer/ratio/k3", 0.0)
        if k3 > self.config.k3_alarm:
            split = {n: v for n, v in metrics.items() if n.endswith("_k3")}
            self.pulse.event("ratio.alarm", f"step {number}", f"mean k3 is {k3:.4f} ({split})")
        return metrics | group_metrics(groups, excluded)

    def hand_over(self, number: int, groups: Sequence[ClosedGroup], metrics: Metrics) -> None:
        """Leave it to the thread behind to make the step durable."""
        self.settle()  # a step without an update did not
        with self.clock.of("probe"):
            # several ranks compute in one order, in which there is no room beside the next step
            probes = () if self.crew.alone else self.probe()
        seconds = self.clock.turn()
        step = Step(
            step=number,
            version=self.version + 1,
            group_ids=tuple(group.group.group_id for group in groups),
            metrics=metrics | self.clock.metrics(),
            seconds=seconds,
            committed_at=0.0,
        )
        self.version, self.held = step.version, frozenset(step.group_ids)
        self.crew.publish(number)
        self.behind.start(number, partial(self.publish, step, probes))

    def probe(self) -> tuple[Probe, ...]:
        """What the weights in memory say to the run's probes."""
        return self.crew.probe(self.lineage.probe_ids(self.crew.vocabulary))

    def publish(self, step: Step, probes: tuple[Probe, ...]) -> None:
        """Make the step durable, in the one order that survives a crash anywhere. Runs behind."""
        with self._concluded(f"publishes step {step.step}"):
            self._publish(step, probes)

    @contextmanager
    def _concluded(self, what: str) -> Iterator[None]:
        """Say what goes on behind, and tell the other ranks how it ended."""
        failure: str | None = "the first rank failed"
        try:
            self.pulse.beside(what)
            yield
            failure = None
        except TradewindError as error:
            failure = str(error)
            raise
        finally:
            self.crew.conclude(failure)
            self.pulse.beside(None)

    def _publish(self, step: Step, probes: tuple[Probe, ...]) -> None:
        began, number = time.monotonic(), step.step
        probes = probes or self.probe()
        probed = time.monotonic()
        leaves, delta = self.crew.upload()
        version = self.lineage.seal(leaves, delta, STAGE, number, probes)
        uploaded = time.monotonic()
        if (number + 1) % self.config.checkpoint_every == 0 or number + 1 == self.config.steps:
            self.crew.save(STAGE, number + 1, self.config.keep_checkpoints)
        metrics = step.metrics | {
            "trainer/probe/seconds": step.metrics["trainer/probe/seconds"] + probed - began,
            "trainer/publish/seconds": uploaded - probed,
            "trainer/publish/bytes": float(version.bytes_shipped),
            "trainer/checkpoint/seconds": time.monotonic() - uploaded,
        }
        step = step.model_copy(update={"metrics": metrics, "committed_at": time.time()})
        self.pulse.check()  # whoever lost the place commits nothing
        self.ledger.commit_step(step, version)
        self.lineage.announce(version, leaves, self.crew.tensors())
        self.file.append(line_of(step))
        if self.config.collect_span and version.version % self.config.collect_span == 0:
            self._collect(number)
        LOG.info(
            "step %d: version %d, reward %.3f, loss %.4f, %.1f s (waited %.1f s, stalled %.2f s)",
            number,
            version.version,
            metrics["trainer/reward/mean"],
            metrics.get("trainer/loss/value", 0.0),
            step.seconds,
            metrics["trainer/wait/seconds"],
            metrics["trainer/stall/seconds"],
        )

    def _collect(self, number: int) -> None:
        """A collection that fails leaves garbage, no more."""
        self.pulse.beside("collects what no pool needs")
        try:
            freed = self.lineage.collect()
        except (RefusedWeights, UserError) as error:
            self.pulse.event("collection.failed", f"step {number}", str(error))
        else:
            LOG.info("step %d: %d bytes of the bucket are free", number, freed)

    def settle(self) -> None:
        """Wait until the last publication is over; raises what it failed with."""
        with self.clock.of("settle"):
            if self.behind.busy:
                said = f"the publication of step {self.behind.number}"
                self.pulse.waiting(self.doing, said, owner="bucket")
            self.behind.settle()
            self.pulse.doing(self.doing)


def collect(groups: Sequence[ClosedGroup]) -> tuple[list[Sample], Counter[str]]:
    """Samples of all groups, and what was excluded, by cause."""
    samples: list[Sample] = []
    excluded: Counter[str] = Counter()
    for group in groups:
        collected = samples_of(group)
        samples += collected.samples
        excluded += collected.excluded
    return samples, excluded


def group_metrics(groups: Sequence[ClosedGroup], excluded: Counter[str]) -> Metrics:
    """Reward and mixing of a step's groups, and what could not be trained."""
    rewards = [r.reward for group in groups for r in group.rollouts if r.reward is not None]
    mixed = sum(any(rollout.advantage for rollout in group.rollouts) for group in groups)
    out = {
        "trainer/reward/mean": sum(rewards) / max(1, len(rewards)),
        "trainer/groups/mixed_share": mixed / max(1, len(groups)),
    }
    return out | {f"trainer/excluded/{cause}": float(n) for cause, n in excluded.items()}


def line_of(step: Step) -> dict[str, object]:
    """A step as a line of metrics/rl.jsonl."""
    return {
        "stage": STAGE,
        "step": step.step,
        "version": step.version,
        "seconds": step.seconds,
        "at": step.committed_at,
        **step.metrics,
    }
