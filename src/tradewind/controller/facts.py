"""What the controller knows at one moment; read once per tick, used by every decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tradewind.controller.config import ControllerConfig
from tradewind.controller.staleness import Room, oldest_fresh, room
from tradewind.ledger.ledger import Ledger
from tradewind.ledger.status import Counts
from tradewind.types.beat import Beat
from tradewind.types.group import GroupState
from tradewind.types.trust import Pause
from tradewind.types.weights import PoolReport, PoolState


@dataclass(frozen=True)
class Facts:
    """One snapshot."""

    now: float
    counts: Counts
    pools: Sequence[PoolReport]
    """All that ever reported; `at` is the controller's clock."""
    beats: Sequence[Beat]
    training: bool
    """Whether training groups are opened and leased."""
    workers: Mapping[str, float]
    """When each worker last asked for anything, in Unix seconds."""
    paused: Pause | None = None
    """Why no training group is opened or leased although training is open."""
    planned_steps: int | None = None
    """Steps after which training ends (ledger meta `training_steps`); None if that is open."""
    aside: int = 0
    """Tasks that are set aside."""

    def serving(self, config: ControllerConfig) -> list[PoolReport]:
        """Pools that can answer now."""
        return [
            pool
            for pool in self.pools
            if pool.state is not PoolState.STARTING and self.now - pool.at <= config.pool_alive_s
        ]

    def served(self, config: ControllerConfig) -> list[int]:
        """The versions that can answer now."""
        return sorted({pool.version for pool in self.serving(config)})

    def room(self, config: ControllerConfig) -> Room:
        """How many training groups may be outstanding, and for which weights."""
        counts, served = self.counts, self.served(config)
        found = room(
            counts.version, served, config.max_staleness, config.groups_per_step, counts.returned
        )
        if self.planned_steps is None:
            return found
        # Groups that no step will consume would only take the pools from those that count.
        still = max(0, self.planned_steps - self.counts.steps) * config.groups_per_step
        return replace(found, limit=min(found.limit, still))

    def stale_pools(self, config: ControllerConfig) -> bool:
        """Whether every pool is too far behind the trainer to answer training rollouts."""
        counts = self.counts
        oldest = oldest_fresh(counts.version, config.max_staleness, counts.returned)
        return all(version < oldest for version in self.served(config))

    @property
    def steps_to_come(self) -> bool:
        """Whether training is open and a step is still planned."""
        done = self.planned_steps is not None and self.counts.steps >= self.planned_steps
        return self.training and not done

    @property
    def closed(self) -> int:
        """Training groups that wait for the trainer."""
        return self.counts.training_groups.get(GroupState.CLOSED, 0)

    @property
    def evaluating(self) -> bool:
        """Whether an evaluation is under way."""
        return self.counts.eval_groups.get(GroupState.OPEN, 0) > 0


def read_facts(ledger: Ledger, now: float, workers: Mapping[str, float]) -> Facts:
    """The facts as the ledger has them now."""
    paused = ledger.paused()
    return Facts(
        now=now,
        counts=ledger.counts(),
        pools=ledger.pools(),
        beats=ledger.beats(),
        training=paused is None and bool(ledger.meta("training_open", False)),
        paused=paused,
        workers=dict(workers),
        planned_steps=ledger.meta("training_steps"),
        aside=len(ledger.set_aside()),
    )
