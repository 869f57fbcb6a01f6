"""A step: one optimiser update and what it consumed."""

from __future__ import annotations

from tradewind.types.ids import GroupId
from tradewind.types.record import Record


class Step(Record):
    """Committed in one ledger transaction with the consumption of its groups (promise R7)."""

    step: int
    """0-based count of RL steps."""
    version: int
    """Policy version that this step produced."""
    group_ids: tuple[GroupId, ...]
    metrics: dict[str, float]
    """`<module>/<noun>/<stat>`; finite."""
    seconds: float
    committed_at: float
    """Unix seconds."""
