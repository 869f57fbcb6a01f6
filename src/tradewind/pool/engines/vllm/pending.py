"""One request that vLLM works on: what is asked, and how its events become chunks.

vLLM says which version sampled which token once, with the last event. A token that arrives before
any swap has begun since the request was sent needs no saying. After one, rollouts hold their tokens
back until the last event (an empty chunk goes out in place of each batch, as a sign of life); a
user's go on at once under the version that is active, or about to be, when they arrive, because a
user waits and nobody trains on what users get.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from tradewind.pool.engine import OnChunk
from tradewind.pool.engines.vllm.client import VllmFailed
from tradewind.types import FinishReason, GenerateChunk, GenerateRequest, Priority

log = logging.getLogger(__name__)

FLUSH_TOKENS = 16
"""Tokens of an event for a request that nobody reads along."""
NO_LOGPROB = -9000.0
"""vLLM says -9999 where it has no finite number."""
MASK = (1 << 63) - 1
REASONS = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "abort": FinishReason.CANCELLED,
}


class Pending:
    """Used by the engine's event loop. `limit` is the number of tokens that may be sampled."""

    def __init__(self, request: GenerateRequest, on_chunk: OnChunk, order: int, limit: int) -> None:
        self.request, self._on_chunk = request, on_chunk
        self.limit = limit
        self.rank = (int(request.priority), order)
        self.name = f"{order}-{request.request_id}"
        """Unique in vLLM, also when a turn is asked for twice."""
        self.version = 0
        """Active when the request was sent."""
        self.straddles = False
        """Whether a swap has begun since then."""
        self.cancelled = False
        self.ended = False
        self.deaf = False
        """Whether the listener has failed; nobody is told anything then."""
        self._ids: list[int] = []
        self._logprobs: list[float] = []
        self._delivered = 0

    def body(self, salt: str) -> dict[str, Any]:
        """Of vLLM's token route. `salt` parts the prefixes of versions from each other."""
        request = self.request
        sampling: dict[str, Any] = {
            "temperature": request.temperature,
            "top_p": request.top_p,
            "max_tokens": self.limit,
            "logprobs": 0,
            "ignore_eos": True,
            "stop_token_ids": list(request.stop_ids),
            "detokenize": False,
            "stream_interval": 1 if request.priority is Priority.USER else FLUSH_TOKENS,
        }
        if request.seed is not None:
            # A request that is continued elsewhere must not see the same random numbers again.
            sampling["seed"] = (request.seed * 0x9E3779B97F4A7C15 + len(request.prompt_ids)) & MASK
        return {
            "request_id": self.name,
            "token_ids": list(request.prompt_ids),
            "sampling_params": sampling,
            "cache_salt": salt,
            "priority": int(request.priority),
        }

    def hear(self, event: Mapping[str, Any], active: int) -> int:
        """Takes one event; `active` is the version of a user's tokens by now. Returns the number of
        sampled tokens. Raises VllmFailed for what cannot be delivered.
        """
        fresh = 0
        for choice in event["choices"]:
            ids = choice["token_ids"]
            content = (choice["logprobs"] or {"content": []})["content"]
            logprobs = [float(entry["logprob"]) for entry in content]
            if len(logprobs) != len(ids) or any(p < NO_LOGPROB for p in logprobs):
                raise VllmFailed("vLLM gave no finite log-probability for a sampled token")
            self._ids += ids
            self._logprobs += [min(p, 0.0) for p in logprobs]
            fresh += len(ids)
            if (reason := choice["finish_reason"]) is not None:
                self._end(reason, choice["weight_versions"])
            elif not self.straddles:
                self._flush(len(self._ids), self.version)
            elif self.request.priority is Priority.USER:
                self._flush(len(self._ids), active)
            else:  # a sign of life, for whoever would take a long answer for a dead pool
                self._deliver(GenerateChunk(ids=(), logprobs=(), version=self.version))
        return fresh

    def finish(self, reason: FinishReason, version: int) -> None:
        """Delivers the last chunk, without tokens that are held back."""
        self._ids, self._logprobs = [], []
        self._deliver(GenerateChunk(ids=(), logprobs=(), version=version, finish_reason=reason))

    def fail(self, error: str, version: int) -> None:
        """Delivers the error as the last chunk."""
        self._deliver(GenerateChunk(ids=(), logprobs=(), version=version, error=error))

    def _end(self, reason: str, spans: list[Mapping[str, Any]] | None) -> None:
        """The last event: all that is held back, each token under the version that sampled it."""
        known = REASONS.get(reason)
        if known is None or (known is FinishReason.CANCELLED and not self.cancelled):
            raise VllmFailed(f"vLLM ended the request ({reason})")
        version = self.version
        for version, count in self._shares(spans or ()):
            self._flush(count, version)
        if self._ids:
            raise VllmFailed("vLLM did not say which weights sampled a token")
        self._deliver(GenerateChunk(ids=(), logprobs=(), version=version, finish_reason=known))

    def _shares(self, spans: list[Mapping[str, Any]] | tuple[()]) -> Iterator[tuple[int, int]]:
        """(version, number of tokens not delivered yet), in order."""
        before_swap = 0 if self.request.priority is Priority.USER else self._delivered
        delivered = self._delivered
        for span in spans:
            version = int(span["version"])
            if version != self.version and span["start"] < before_swap:
                raise VllmFailed("vLLM sampled a token by other weights than it said")
            if (count := span["end"] - max(span["start"], delivered)) > 0:
                yield version, count

    def _flush(self, count: int, version: int) -> None:
        if count:
            ids, logprobs = tuple(self._ids[:count]), tuple(self._logprobs[:count])
            del self._ids[:count], self._logprobs[:count]
            self._delivered += count
            self._deliver(GenerateChunk(ids=ids, logprobs=logprobs, version=version))

    def _deliver(self, chunk: GenerateChunk) -> None:
        last = chunk.finish_reason is not None or chunk.error is not None
        if self.ended:
            return
        self.ended = last
        if self.deaf:
            return
        try:
            self._on_chunk(chunk)
        except Exception:  # boundary: one listener's fault is not the others'
            log.exception("the listener of %s failed", self.request.request_id)
            self.deaf = True
