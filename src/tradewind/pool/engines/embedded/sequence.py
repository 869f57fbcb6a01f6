"""A sequence: one request while the engine works on it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tradewind.pool.engine import OnChunk
from tradewind.types import FinishReason, GenerateChunk, GenerateRequest, Priority

if TYPE_CHECKING:
    from tradewind.pool.engines.embedded.kv import Lane

log = logging.getLogger(__name__)

FLUSH_TOKENS = 8
"""Tokens per chunk of a request that nobody reads along; a user gets every token at once.
Fewer chunks leave the interpreter to the engine thread."""


@dataclass(eq=False)
class Sequence:
    """Identity matters, so two sequences are never equal.

    `ids[:done]` have their KV in `lane.row`; the step that computes `ids[done:]` to the end also
    samples the next id.
    """

    request: GenerateRequest
    on_chunk: OnChunk
    order: int
    """Arrival number."""
    seed: int
    limit: int
    """Most ids, prompt included."""
    ids: list[int] = field(default_factory=list)
    done: int = 0
    lane: Lane | None = None
    row: int = -1
    decoding: bool = False
    kv_version: int = -1
    """Version that computed all KV so far; -1 once two versions have mixed."""
    chain: list[int] = field(default_factory=list)
    """Ids of the prefix cache's blocks that hold this sequence's leading KV."""
    deaf: bool = False
    """Whether `on_chunk` has failed; the sequence is then cancelled."""
    _ids: list[int] = field(default_factory=list)
    _logprobs: list[float] = field(default_factory=list)
    _version: int = -1

    def __post_init__(self) -> None:
        self.ids = list(self.request.prompt_ids)
        self.stop_ids = frozenset(self.request.stop_ids)

    @property
    def rank(self) -> tuple[int, int]:
        """Who goes first: smaller."""
        return int(self.request.priority), self.order

    @property
    def pending(self) -> int:
        """Ids whose KV is missing."""
        return len(self.ids) - self.done

    def take(self, token: int, logprob: float, version: int) -> FinishReason | None:
        """Appends a sampled id; delivers full chunks; says whether the sequence has ended."""
        if version != self._version:
            self._flush(None)
            self._version = version
        self.ids.append(token)
        self._ids.append(token)
        self._logprobs.append(logprob)
        if token in self.stop_ids:
            return FinishReason.STOP
        if len(self.ids) >= self.limit:
            return FinishReason.LENGTH
        if self.deaf:
            return FinishReason.CANCELLED
        size = 1 if self.request.priority == Priority.USER else FLUSH_TOKENS
        if len(self._ids) >= size:
            self._flush(None)
        return None

    def finish(self, reason: FinishReason, version: int) -> None:
        """Delivers the last chunk."""
        if not self._ids:
            self._version = version
        self._flush(reason)

    def fail(self, error: str, version: int) -> None:
        """Delivers what was sampled, and the error as the last chunk."""
        self._flush(None)
        self._deliver(GenerateChunk(ids=(), logprobs=(), version=version, error=error))

    def _flush(self, reason: FinishReason | None) -> None:
        if not self._ids and reason is None:
            return
        ids, logprobs = tuple(self._ids), tuple(self._logprobs)
        self._ids, self._logprobs = [], []
        version = self._version
        chunk = GenerateChunk(ids=ids, logprobs=logprobs, version=version, finish_reason=reason)
        self._deliver(chunk)

    def _deliver(self, chunk: GenerateChunk) -> None:
        try:
            self.on_chunk(chunk)
        except Exception:  # boundary: one listener's fault is not the others'
            log.exception("the listener of %s failed", self.request.request_id)
            self.deaf = True
