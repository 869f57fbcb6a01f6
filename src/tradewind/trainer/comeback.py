"""Going back: the weights of an earlier version become the next one, and AdamW begins anew.

    order ─► fetch version N ─► take it over ─► upload ─► commit ─► announce
             (bucket)           (all ranks)               (order done, groups rejected)

The new version is a child of the newest one, so pools come to it by the ordinary delta. It is the
order of durability of a step, without a checkpoint: what a trainer holds after a return is that
version and nothing else, so whoever starts again begins there (`restore.py`). After a crash before
the commit the order is still there, and all of it is done again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from tradewind.ledger.ledger import Ledger
from tradewind.trainer.crew import Crew
from tradewind.trainer.lineage import Lineage
from tradewind.types import RefusedWeights, WeightVersion
from tradewind.types.returned import ReturnOrder
from tradewind.weights.digest import root
from tradewind.weights.probe import Probe

STAGE = "return"
LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Comeback:
    """One return; nothing is in flight meanwhile."""

    crew: Crew
    ledger: Ledger
    lineage: Lineage
    order: ReturnOrder

    def take_over(self) -> bool:
        """Hold the old weights, on all ranks. False if they cannot be had: then the order is taken
        off with the reason, and nothing has changed.
        """
        try:
            weights = self.lineage.at(self._goal())
        except RefusedWeights as error:
            LOG.warning("no return to version %d: %s", self.order.back_to, error)
            self.ledger.refuse_return(self.order, str(error))
            return False
        self.crew.adopt(dict(weights), afresh=True)
        return True

    def publish(self, number: int, probes: tuple[Probe, ...], check: Callable[[], None]) -> None:
        """Upload, commit, announce, before step `number`; `check` raises if the place was lost."""
        leaves, delta = self.crew.upload()
        goal = self._goal().state_id
        assert root(leaves) == goal, f"{root(leaves)} is not version {self.order.back_to} ({goal})"
        version = self.lineage.seal(leaves, delta, STAGE, number, probes)
        check()
        made = self.ledger.commit_return(self.order, version)
        self.lineage.announce(version, leaves, self.crew.tensors())
        LOG.warning("%s", made.sentence)

    def _goal(self) -> WeightVersion:
        version = self.ledger.version(self.order.back_to)
        assert version is not None, "only committed versions can be asked for"
        return version
