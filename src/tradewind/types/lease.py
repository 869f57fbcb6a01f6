"""A lease: one rollout, handed to a worker for a limited time."""

from __future__ import annotations

from tradewind.types.ids import RolloutId
from tradewind.types.record import Json, Record


class Lease(Record):
    """What the customer's worker gets. It holds no reference answer and no platform secret."""

    rollout_id: RolloutId
    task_id: str
    input: Json
    base_url: str
    """Of the gateway, constant for all rollouts; the key alone names the rollout."""
    model: str
    model_key: str
    """For the agent; can sample, cannot report (promise R6)."""
    result_key: str
    """For the worker; can report, heartbeat and cancel."""
    deadline: float
    """Unix seconds; the lease is lost earlier if neither heartbeat nor model traffic renews it."""
    heartbeat_s: float
    """Renew at least this often, in seconds."""
