"""The trainer process: one optimiser step per turn of the loop.

    consumes     closed groups (ledger), the model folder, checkpoints
    produces     weight versions (bucket), steps (ledger), metrics/rl.jsonl, checkpoints
    waits for    closed groups                      unblocked by controller, grader, worker
                 the place of a dead trainer        unblocked by its time to live

    claim ─► samples ─► step ─► upload ─► checkpoint ─► commit ─► announce
      ▲                                                   │
      └───────────────────────────────────────────────────┘

A crash before the commit: nothing happened, the same groups are claimed again. A crash after it:
the step stands, the next start replays it from the ledger's groups and announces it again. So
every group is trained into exactly one version (promise R7).
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tradewind.algo.samples import samples_of
from tradewind.ledger.ledger import Ledger
from tradewind.trainer.config import TrainerConfig
from tradewind.trainer.crew import Crew
from tradewind.trainer.learner import Learner
from tradewind.trainer.lineage import Lineage
from tradewind.trainer.progress import MetricsFile
from tradewind.trainer.pulse import Pulse
from tradewind.trainer.ranks import Ranks
from tradewind.trainer.restore import restore
from tradewind.trainer.run import Run, open_run
from tradewind.trainer.step import Metrics, Trainer
from tradewind.types import ClosedGroup, Sample, Stalled, Step

STAGE = "rl"
LOG = logging.getLogger(__name__)


def train(config: TrainerConfig, run: Run) -> None:
    """Work until `config.steps` are committed.

    Raises:
        UserError: bad input, or numbers that are not finite; nothing of that step is committed.
        Conflict: another trainer lives on this run.
        Stalled: no group closed for `config.wait_deadline_s`.
    """
    ranks = Ranks.join()
    learner = Learner.open(run.model, config, ranks)
    crew = Crew(learner, run.checkpoints, Trainer(learner, config))
    if not ranks.first:
        crew.follow()
        return
    with open_run(run, config) as (ledger, lineage, pulse):
        loop = Loop(config, crew, ledger, lineage, pulse, MetricsFile(run.workspace, STAGE))
        for number in range(loop.restore(), config.steps):
            groups = loop.claim(number)
            samples, excluded = collect(groups)
            metrics = loop.step(samples, number)
            metrics |= group_metrics(groups, excluded)
            loop.commit(number, groups, metrics)
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
    began: float = 0.0
    waited: float = 0.0

    def restore(self) -> int:
        """Go back to where the ledger says the run is; returns the number of the next step."""
        self.pulse.doing("restore")
        done = restore(self.crew, self.ledger, self.lineage, self.pulse)
        self.file.restart(line_of(step) for step in self.ledger.steps())
        return done

    def claim(self, number: int) -> list[ClosedGroup]:
        """Wait for the step's groups; the wait is in the beat and has a deadline."""
        needed, version = self.config.groups_per_step, self.lineage.version.version
        asked = progressed = time.monotonic()
        closed = -1
        while not (groups := self.ledger.claimable(needed, version, self.config.max_staleness)):
            if (now_closed := self.ledger.closed()) != closed:
                closed, progressed = now_closed, time.monotonic()
            missing = f"{needed - closed} more closed groups for step {number}"
            if (waited := time.monotonic() - progressed) > self.config.wait_deadline_s:
                raise Stalled(missing, owner="controller", seconds=waited)
            self.pulse.waiting(f"step {number}", missing, owner="controller")
            time.sleep(self.config.poll_s)
        self.began, self.waited = time.monotonic(), time.monotonic() - asked
        return groups

    def step(self, samples: Sequence[Sample], number: int) -> Metrics:
        """One update of the weights in memory."""
        self.pulse.doing(f"step {number}")
        metrics = self.crew.step(samples, self.lineage.version.version, number)
        k3 = metrics.get("trainer/ratio/k3", 0.0)
        if k3 > self.config.k3_alarm:
            split = {n: v for n, v in metrics.items() if n.endswith("_k3")}
            self.pulse.event("ratio.alarm", f"step {number}", f"mean k3 is {k3:.4f} ({split})")
        return metrics

    def commit(self, number: int, groups: Sequence[ClosedGroup], metrics: Metrics) -> None:
        """Make the step durable, in the one order that survives a crash anywhere."""
        self.pulse.doing(f"publish step {number}")
        new = self.crew.weights()
        probing = time.monotonic()
        probes = self.crew.probe(self.lineage.probe_ids(self.crew.vocabulary))
        uploading = time.monotonic()
        version = self.lineage.publish(new, STAGE, number, probes)
        uploaded = time.monotonic()
        if (number + 1) % self.config.checkpoint_every == 0 or number + 1 == self.config.steps:
            self.crew.save(STAGE, number + 1, self.config.keep_checkpoints)
        metrics |= {
            "trainer/wait/seconds": self.waited,
            "trainer/probe/seconds": uploading - probing,
            "trainer/publish/seconds": uploaded - uploading,
            "trainer/publish/bytes": float(version.bytes_shipped),
            "trainer/checkpoint/seconds": time.monotonic() - uploaded,
        }
        step = Step(
            step=number,
            version=version.version,
            group_ids=tuple(group.group.group_id for group in groups),
            metrics=metrics,
            seconds=time.monotonic() - self.began,
            committed_at=time.time(),
        )
        self.pulse.doing(f"commit step {number}")
        self.ledger.commit_step(step, version)
        self.lineage.announce(version, new)
        self.file.append(line_of(step))
        LOG.info(
            "step %d: version %d, reward %.3f, loss %.4f, %.1f s (waited %.1f s)",
            number,
            version.version,
            metrics["trainer/reward/mean"],
            metrics.get("trainer/loss/value", 0.0),
            step.seconds,
            self.waited,
        )


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
    rewards = [[r.reward for r in group.rollouts if r.reward is not None] for group in groups]
    flat = [reward for group in rewards for reward in group]
    out = {
        "trainer/reward/mean": sum(flat) / max(1, len(flat)),
        "trainer/groups/mixed_share": sum(len(set(g)) > 1 for g in rewards) / max(1, len(rewards)),
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
