"""Configuration of the worker."""

from __future__ import annotations

from pydantic import Field

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
