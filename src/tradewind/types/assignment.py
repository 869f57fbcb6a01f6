"""Push mode: what a customer's server is asked to play, and how far it is."""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tradewind.types.ids import RolloutId
from tradewind.types.outcome import Outcome
from tradewind.types.record import Json, Record

PROTOCOL = 1


class _Received(BaseModel):
    """Frozen; unknown keys are ignored, so that a later version may add some."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())


class PolicyAccess(_Received):
    """Where the model is, for one rollout."""

    base_url: str = Field(min_length=1)
    """An OpenAI-compatible endpoint, `/v1` included."""
    api_key: str = Field(min_length=1)
    """Dead when the rollout is over."""
    model: str = Field(min_length=1)


class Assignment(_Received):
    """Body of `POST /rollouts`. It holds no reference answer, no rubric and no lasting secret."""

    protocol: Literal[1]
    rollout_id: RolloutId = Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9._-]+$")
    """The caller's id: repeating it with the same body starts nothing."""
    task_id: str
    task: Json
    task_hash: str
    """`hash_of(task)`: the same task in every run."""
    seed: int = Field(ge=0)
    """For whatever the environment draws; 48 bits, the same if the rollout is asked for again."""
    policy: PolicyAccess
    deadline: float
    """Unix seconds."""
    lease_s: float = Field(gt=0)
    """Without a poll for so long the caller is gone: end the rollout as `expired`."""


class RolloutState(StrEnum):
    """accepted -> running -> succeeded | failed | cancelled | expired."""

    ACCEPTED = "accepted"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    """With an outcome that is graded."""
    FAILED = "failed"
    """With an outcome that is null, and its cause."""
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    """Nobody polled for `lease_s`."""

    @property
    def over(self) -> bool:
        """Whether it stays so."""
        return self not in (RolloutState.ACCEPTED, RolloutState.RUNNING)


class Progress(_Received):
    """Answer to `POST /rollouts`, `GET /rollouts/{id}` and `POST /rollouts/{id}/cancel`."""

    rollout_id: RolloutId
    state: RolloutState
    outcome: Outcome | None = None
    """Exactly when `succeeded` or `failed`."""

    @model_validator(mode="after")
    def _outcome_fits_state(self) -> Self:
        wanted = {RolloutState.SUCCEEDED: True, RolloutState.FAILED: False}.get(self.state)
        has = None if self.outcome is None else self.outcome.status.gradable
        if wanted != has:
            status = None if self.outcome is None else self.outcome.status.value
            raise ValueError(f"state {self.state.value} does not go with outcome {status}")
        return self


class Fault(Record):
    """Body of every 4xx and 5xx."""

    error: str
    """A sentence."""
    code: str = "refused"
    """For programs: bad_signature, stale, replayed, unknown_key, conflict, full, ..."""


def hash_of(task: Json) -> str:
    """SHA-256 over the task's JSON with sorted keys and no spaces, as 64 hex digits."""
    text = json.dumps(task, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def seed_of(rollout: RolloutId) -> int:
    """48 bits of SHA-256 over the rollout's id; JSON numbers hold them exactly everywhere."""
    return int.from_bytes(hashlib.sha256(rollout.encode()).digest()[:6], "big")
