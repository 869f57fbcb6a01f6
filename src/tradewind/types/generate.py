"""The token route between gateway and pool."""

from __future__ import annotations

from enum import IntEnum

from tradewind.types.record import Record
from tradewind.types.turn import FinishReason


class Priority(IntEnum):
    """Who is admitted first; smaller goes first (promise U1)."""

    USER = 0
    EVAL = 1
    ROLLOUT = 2


class GenerateRequest(Record):
    """`POST /v1/generate` of a pool: token ids in, `GenerateChunk` lines out (NDJSON)."""

    request_id: str
    """Turn id, or any unique id for user traffic."""
    prompt_ids: tuple[int, ...]
    max_tokens: int
    temperature: float = 1.0
    """0 is greedy; logprobs are then those of temperature 1."""
    top_p: float = 1.0
    stop_ids: tuple[int, ...]
    priority: Priority = Priority.ROLLOUT
    seed: int | None = None
    """Makes the sampled ids a function of (seed, position, weights)."""


class GenerateChunk(Record):
    """Tokens decoded since the last chunk, all by one weight version.

    One without tokens and without an end is a sign of life: some were sampled that may not leave
    the pool yet.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    version: int
    finish_reason: FinishReason | None = None
    """Set on the last chunk only."""
    error: str | None = None
    """Set instead of a finish reason if the engine could not serve the request."""
