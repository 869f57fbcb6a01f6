"""One round of the controller: what is due is done, in a fixed order.

Each part derives what is due from the ledger alone, so that a round which is cut off anywhere is
made good by the next one, in this process or its successor.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from tradewind.algo.advantages import group_mean
from tradewind.controller.config import ControllerConfig
from tradewind.controller.facts import Facts, read_facts
from tradewind.controller.stalls import StallWatch
from tradewind.controller.trust import TrustWatch
from tradewind.controller.waits import PAUSE_ENDS
from tradewind.ledger.ledger import Ledger
from tradewind.rewards.compose import compose
from tradewind.types.beat import Beat

log = logging.getLogger("controller")

BEAT_S = 1.0


class Rounds:
    """Not thread-safe: one round at a time. `look` may go on beside it."""

    def __init__(
        self, config: ControllerConfig, ledger: Ledger, clock: Callable[[], float]
    ) -> None:
        self.workers: dict[str, float] = {}
        """When each worker was last heard of, in Unix seconds."""
        self.stalls = StallWatch(config)
        self._trust = TrustWatch(config, ledger)
        self._config, self._ledger, self._clock = config, ledger, clock
        self._since, self._beat_at = clock(), 0.0

    def round(self) -> Facts:
        """Expire, refill, close, open; then say what stands still.

        Returns the facts afterwards.
        """
        for rollout in self._ledger.expire(self._clock()):
            log.warning("%s: lease lost", rollout)
        config = self._config
        self._ledger.refill(config.max_refills, config.min_group, config.max_invalid)
        closed = self._ledger.close_ready(
            compose, group_mean, self._trust.factors(), max_caught=config.max_caught
        )
        for group in closed:
            log.info("%s closed", group)
        self._ledger.open_eval_groups()
        facts = self.facts()
        if self._open_training_groups(facts):
            facts = self.facts()
        for event in self.stalls.observe(facts):
            log.warning("%s %s", event.kind, event.detail)
            self._ledger.event(event)
        self._beat(facts)
        return facts

    def look(self) -> None:
        """Weigh judges and ring alarms, if that is due. Groups close with what it last decided."""
        self._trust.look(self._clock())

    def facts(self) -> Facts:
        """What the ledger says now."""
        return read_facts(self._ledger, self._clock(), self.workers)

    def _open_training_groups(self, facts: Facts) -> int:
        """Open groups as long as there is room; how many were opened."""
        if not facts.training:
            return 0
        room, opened = facts.room(self._config), 0
        while (
            self._ledger.open_training_group(
                self._config.group_size, room.limit, room.min_version, facts.counts.version
            )
            is not None
        ):
            opened += 1
        return opened

    def _beat(self, facts: Facts) -> None:
        """The controller's beat, and those of the workers, which cannot reach the ledger."""
        if facts.now - self._beat_at < BEAT_S:
            return
        self._beat_at = facts.now
        doing = "opens training groups" if facts.training else "leases and closes"
        paused = facts.paused
        self._ledger.beat(
            Beat(
                process="controller",
                doing=doing if paused is None else f"training is {paused.sentence}",
                waiting_for=None if paused is None else PAUSE_ENDS,
                owner=None if paused is None else "you",
                since=self._since if paused is None else paused.at,
                at=facts.now,
            )
        )
        for worker, heard in self.workers.items():
            running = facts.counts.running_at.get(worker, 0)
            self._ledger.beat(
                Beat(
                    process=worker,
                    doing=f"runs {running} rollouts",
                    waiting_for=None if running else "a lease",
                    owner=None if running else "controller",
                    since=heard,
                    at=heard,
                )
            )
