"""Configuration of the controller."""

from __future__ import annotations

import math

from pydantic import Field, model_validator

from tradewind.rewards.trust.alarms import AlarmConfig
from tradewind.rewards.trust.config import TrustConfig
from tradewind.types.config import Config


class ControllerConfig(Config):
    """Section `[controller]` of a recipe."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=8200, ge=0, le=65535)
    """Port to listen on; 0 takes a free one, told in the first log line."""
    ledger: str | None = None
    """SQLAlchemy URL or path; None is the workspace's own."""
    gateway_url: str = "http://127.0.0.1:8300/v1"
    """Base URL that workers give to their agents."""
    model: str = "policy"
    """Model name that workers give to their agents."""
    group_size: int = Field(default=8, ge=1)
    """Rollouts of one task that are trained together."""
    groups_per_step: int = Field(default=8, ge=1)
    """Groups that one optimiser step consumes."""
    max_staleness: int = Field(default=2, ge=0)
    """How many versions the oldest token of a group may be behind when it is trained; 0 is the
    synchronous mode."""
    max_running: int = Field(default=64, ge=1)
    """Rollouts that run at the same time, over all workers."""
    max_refills: int = Field(default=16, ge=0)
    """Null rollouts of one group that are replaced; one more, and it goes on as it is or ends."""
    min_group_share: float = Field(default=0.5, gt=0, le=1)
    """A group whose nulls are replaced no more is trained if at least this share of `group_size`
    rollouts (and never fewer than two of several) is not null; otherwise it is rejected."""
    max_caught: int = Field(default=3, ge=1)
    """A training task of which so many groups were caught by a tripwire is drawn no more, until a
    person restores it."""
    max_invalid: int = Field(default=4, ge=1)
    """Groups of one task in a row that ended by nulls of its environment or verifier, after which
    the task is set aside until a person restores it, if other tasks are trained meanwhile."""
    lease_ttl_s: float = Field(default=30.0, gt=0)
    """A lease is lost after so long without heartbeat or model traffic, in seconds."""
    heartbeat_s: float = Field(default=5.0, gt=0)
    """How often workers are asked to renew their leases, in seconds."""
    rollout_deadline_s: float = Field(default=300.0, gt=0)
    """How long an agent may take over one rollout, in seconds."""
    token_budget: int | None = Field(default=None, ge=1)
    """Most tokens that one rollout may sample over all its calls, bound to its key with the lease;
    None is no limit. The answer at the limit is cut there, the next call gets one last message that
    says so, and later ones 409. A tenant may have a smaller one."""
    pool_alive_s: float = Field(default=6.0, gt=0)
    """A pool whose last report is older does not count as serving, in seconds."""
    tick_s: float = Field(default=0.2, gt=0)
    """Longest pause between two looks at what is due, in seconds."""
    max_wait_s: float = Field(default=30.0, gt=0)
    """Longest that a request for a lease is held open, in seconds."""
    max_waiting: int = Field(default=1024, ge=1)
    """Requests for leases that are held open at the same time; more get 429 with Retry-After, and a
    tenant that has as many as it may hold leases, too."""
    stall_s: float = Field(default=30.0, gt=0)
    """Without any progress for so long, the cause and its owner become an event, in seconds."""
    silent_s: float = Field(default=15.0, gt=0)
    """A process without a beat for so long becomes an event, in seconds."""
    trust: TrustConfig = Field(default_factory=TrustConfig)
    """What judges must show before they count."""
    alarms: AlarmConfig = Field(default_factory=AlarmConfig)
    """What is looked at while a run goes, and what is done about it."""
    max_body_bytes: int = Field(default=4_000_000, ge=1)
    """Larger request bodies get 413."""

    @property
    def min_group(self) -> int:
        """Rollouts without null that a group needs at the least."""
        return max(min(2, self.group_size), math.ceil(self.min_group_share * self.group_size))

    @model_validator(mode="after")
    def _a_heartbeat_may_be_missed(self) -> ControllerConfig:
        if self.lease_ttl_s < 2 * self.heartbeat_s:
            raise ValueError("lease_ttl_s must be at least twice heartbeat_s")
        return self
