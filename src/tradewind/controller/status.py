"""The status JSON: where the run stands, who waits for whom."""

from __future__ import annotations

from tradewind.controller.config import ControllerConfig
from tradewind.controller.facts import Facts
from tradewind.controller.waits import waits
from tradewind.ledger.ledger import Ledger
from tradewind.types.record import Json
from tradewind.types.weights import PoolReport

EVENTS_SHOWN = 20


def read_status(ledger: Ledger, facts: Facts, config: ControllerConfig, stalled_s: float) -> Json:
    """Facts that do not depend on the stage of the run, as plain JSON."""
    counts = facts.counts
    room = facts.room(config)
    return {
        "at": facts.now,
        "version": counts.version,
        "steps": counts.steps,
        "epoch": round(counts.epoch, 3),
        "training": {
            "open": facts.training,
            "paused": None if facts.paused is None else facts.paused.model_dump(),
            "groups": counts.training_groups,
            "room": room.limit,
            "min_version": room.min_version,
            "per_step": config.groups_per_step,
            "max_staleness": config.max_staleness,
        },
        "evals": {"groups": counts.eval_groups, "waiting_for": list(counts.evals_waiting_for)},
        "rollouts": {
            **counts.rollouts,
            "nulls": counts.nulls,
            "leases": counts.leases,
            "running_at": counts.running_at,
        },
        "turns": {
            **counts.turns,
            "delivered": counts.turns_delivered,
            "tokens": counts.tokens,
            "user_chats": counts.user_chats,
        },
        "pools": [_pool(facts, config, pool) for pool in facts.pools],
        "processes": [
            {**beat.model_dump(), "silent": facts.now - beat.at > config.silent_s}
            for beat in facts.beats
        ],
        "waits": [{**wait.model_dump(), "sentence": str(wait)} for wait in waits(facts, config)],
        "stalled_s": round(stalled_s, 1),
        "events": [event.model_dump() for event in ledger.events(limit=EVENTS_SHOWN)],
        "nulls_by_task": [rate.model_dump() for rate in ledger.null_rates()],
        "tasks_set_aside": ledger.set_aside(),
        "tenants": [use.model_dump() for use in ledger.tenants(facts.now)],
    }


def _pool(facts: Facts, config: ControllerConfig, pool: PoolReport) -> Json:
    age = facts.now - pool.at
    return {
        "pool": pool.pool,
        "version": pool.version,
        "pinned": pool.pinned,
        "lag": facts.counts.version - pool.version,
        "state": pool.state.value,
        "detail": pool.detail,
        "proof": pool.proof,
        "quarantined": [found.model_dump() for found in pool.quarantined],
        "alive": age <= config.pool_alive_s,
        "age_s": round(age, 1),
        "running": pool.running,
        "waiting": pool.waiting,
        "max_batch": pool.max_batch,
        "tokens_per_s": pool.tokens_per_s,
        "dtype": pool.dtype,
    }
