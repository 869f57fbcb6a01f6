"""A rollout's one answered call, as a gateway would have recorded it."""

from __future__ import annotations

from tradewind.ledger.ledger import Ledger
from tradewind.types import Completion, RolloutId, Turn, TurnState, VersionSpan, turn_id


def answered(
    ledger: Ledger,
    rollout: RolloutId,
    *,
    tokens: int = 1,
    text: str | None = None,
    at: float = 1.0,
) -> Turn:
    """Record a call that began at `at`, ended a second later and sampled `tokens` ids."""
    intent = Turn(
        turn_id=turn_id(rollout, 0),
        rollout_id=rollout,
        index=0,
        parent=None,
        state=TurnState.INTENT,
        prompt_ids=(1,),
        completion=None,
        temperature=1.0,
        messages=(),
        started_at=at,
    )
    ledger.write_intent(intent)
    completion = Completion(
        output_ids=(2,) * tokens,
        logprobs=(-0.1,) * tokens,
        spans=(VersionSpan(version=0, count=tokens),),
        finish_reason="stop",
        pool="p",
    )
    changes = {"state": TurnState.DONE, "completion": completion, "text": text}
    done = intent.model_copy(update={**changes, "finished_at": at + 1.0})
    ledger.finish_turn(done)
    return done
