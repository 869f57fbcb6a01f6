"""Configuration of the worker."""

from __future__ import annotations

from pydantic import Field, model_validator

from tradewind.types.config import Config


class WorkerConfig(Config):
    """Section `[worker]` of a recipe."""

    name: str = Field(default="worker", min_length=1, max_length=200)
    """How status and log call it; give each worker of a run its own."""
    concurrency: int = Field(default=32, ge=1)
    """Rollouts that run in it at the same time."""
    wait_s: float = Field(default=20.0, ge=0)
    """How long a request for a lease may be held open by the controller, in seconds."""
    retry_s: float = Field(default=0.2, gt=0)
    """First pause after a failed request, in seconds; doubles up to `retry_max_s`."""
    retry_max_s: float = Field(default=5.0, gt=0)
    """Longest pause between two attempts, in seconds."""
    report_s: float = Field(default=300.0, gt=0)
    """How long it tries to report an outcome before it drops it, in seconds."""
    secret_variables: tuple[str, ...] = ()
    """Environment variables whose values are taken out of outcomes, besides those whose names tell
    it (`*_KEY`, `*TOKEN*`, `PASSWORD`, ...)."""
    grace_s: float = Field(default=2.0, ge=0)
    """How long running rollouts may go on after SIGTERM before they are handed back, in seconds."""


class PushConfig(WorkerConfig):
    """Configuration of `tradewind push`: a worker whose rollouts a customer's server plays."""

    name: str = Field(default="push", min_length=1, max_length=200)
    """How status and log call it."""
    poll_s: float = Field(default=1.0, gt=0)
    """How often a rollout is asked after, in seconds."""
    lease_s: float = Field(default=30.0, gt=0)
    """How long the customer's server keeps a rollout that nobody asks after, in seconds."""
    unreachable_s: float = Field(default=60.0, gt=0)
    """How long the customer's server may be away before a rollout is null, in seconds."""
    request_s: float = Field(default=30.0, gt=0)
    """Longest that one call may take, in seconds."""
    max_answer_bytes: int = Field(default=8_000_000, ge=1)
    """Larger answers are refused."""
    allow_private: bool = False
    """Whether private and loopback addresses may be called; link-local ones never are."""
    allow_http: bool = False
    """Whether hosts without TLS may be called."""

    @model_validator(mode="after")
    def _polls_renew_the_lease(self) -> PushConfig:
        if self.lease_s < 2 * self.poll_s:
            raise ValueError("lease_s must be at least twice poll_s")
        return self
