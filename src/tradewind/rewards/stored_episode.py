"""An episode out of the ledger, as signals saw it when it was graded."""

from __future__ import annotations

from tradewind.ledger.ledger import Ledger
from tradewind.types.episode import Episode
from tradewind.types.ids import RolloutId, group_of


def stored_episode(ledger: Ledger, rollout: RolloutId, *, turns: bool) -> Episode | None:
    """None if the rollout is not graded. Raises `LostPayload` if its `turns` are lost."""
    group = ledger.stored_group(group_of(rollout))
    found = next((r for r in group.rollouts if r.rollout_id == rollout), None)
    if found is None:
        return None
    return Episode(
        rollout_id=rollout,
        task=group.task,
        outcome=found.outcome,
        turns=tuple(ledger.turns(rollout)) if turns else (),
    )
