"""The internal call, behind every dialect."""

from __future__ import annotations

from dataclasses import dataclass

from tradewind.types import Json


@dataclass(frozen=True)
class Sampling:
    """How the answer is sampled, after the parameter table was applied."""

    temperature: float
    """0 is greedy."""
    top_p: float
    max_tokens: int
    seed: int | None = None
    """The user's; rollouts get one from their session and turn."""


@dataclass(frozen=True)
class Call:
    """One request for one answer."""

    messages: tuple[Json, ...]
    """As the agent sent them."""
    sampling: Sampling
    digest: str
    """Of the whole request body; equal bodies have equal digests."""
    retry: bool = False
    """The client says that it has sent this body before."""
    idempotency_key: str | None = None
    """Equal keys of one session mean one call."""
