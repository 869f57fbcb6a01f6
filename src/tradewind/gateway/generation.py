"""The tokens of one answer, over as many pools as it takes.

    prompt ──► pool paris ──► ids, logprobs, version 4 ──x (died)
               pool oregon ◄─ prompt + ids so far
                          ──► ids, logprobs, version 5 ──► stop

The agent sees one answer. The engine's ids are kept whatever happens; how much of it can be
trained is said by `flaw`.
"""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass, field

from tradewind.gateway.answer import Answer
from tradewind.gateway.call import Call
from tradewind.gateway.config import GatewayConfig
from tradewind.gateway.metrics import Metrics
from tradewind.gateway.pool_client import PoolClient, PoolFailed
from tradewind.gateway.refusal import Refusal, broke_off
from tradewind.gateway.router import Route, Router
from tradewind.gateway.speech import Speech
from tradewind.render.renderer import Renderer
from tradewind.types import (
    Completion,
    FinishReason,
    GenerateChunk,
    GenerateRequest,
    PoolReport,
    VersionSpan,
)

_PAUSE_S = 0.05
"""Before the same pool is asked again; doubles with each attempt."""
_POSITIVE_LOGPROB = 1e-3
"""Rounding may lift a log-probability of 0 by so much; more is an error of the engine."""


@dataclass
class Generated:
    """What has arrived of one answer."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    spans: list[VersionSpan] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    pool: str = ""
    """The pool that finished it."""
    flaw: str | None = None
    """Why it cannot be trained; None if ids, log-probabilities and spans belong together."""

    def add(self, chunk: GenerateChunk, vocab_size: int) -> None:
        """Keeps a chunk, and notices if it does not fit together."""
        self.flaw = self.flaw or flaw_of(chunk, vocab_size)
        self.ids.extend(chunk.ids)
        self.logprobs.extend(chunk.logprobs)
        if not chunk.ids:
            return
        if self.spans and self.spans[-1].version == chunk.version:
            count = self.spans.pop().count + len(chunk.ids)
            self.spans.append(VersionSpan(version=chunk.version, count=count))
        else:
            self.spans.append(VersionSpan(version=chunk.version, count=len(chunk.ids)))

    def forget(self) -> None:
        """Starts over."""
        self.ids, self.logprobs, self.spans, self.flaw = [], [], [], None

    def completion(self) -> Completion:
        """For the ledger; only of a finished answer without a flaw."""
        assert self.finish_reason is not None and self.flaw is None
        return Completion(
            output_ids=tuple(self.ids),
            logprobs=tuple(self.logprobs),
            spans=tuple(self.spans),
            finish_reason=self.finish_reason,
            pool=self.pool,
        )


def flaw_of(chunk: GenerateChunk, vocab_size: int) -> str | None:
    """The first thing in a chunk that must not be trained."""
    if len(chunk.ids) != len(chunk.logprobs):
        return f"{len(chunk.ids)} ids came with {len(chunk.logprobs)} log-probabilities"
    if any(not math.isfinite(p) for p in chunk.logprobs):
        return "a log-probability is not finite"
    if any(p > _POSITIVE_LOGPROB for p in chunk.logprobs):
        return "a log-probability is positive"
    if any(not 0 <= token < vocab_size for token in chunk.ids):
        return "an id is outside the vocabulary"
    return None


class Generator:
    """Sends a request to pools until it is answered, or a bound is reached."""

    def __init__(
        self,
        renderer: Renderer,
        router: Router,
        pools: PoolClient,
        config: GatewayConfig,
        metrics: Metrics,
    ) -> None:
        self._renderer, self._router, self._pools = renderer, router, pools
        self._config, self._metrics = config, metrics

    async def generate(
        self,
        first: PoolReport,
        request: GenerateRequest,
        route: Route,
        call: Call,
        answer: Answer,
    ) -> Generated:
        """All tokens, their text added to `answer` as it comes; raises `Refusal` (503) after
        `pool_attempts` in a row that brought nothing.

        `first` was chosen for `route`, `request` made from `call`. With `route.version` set, an
        answer in which another version took part is thrown away and asked for anew; `answer` then
        gets its text once it is whole.
        """
        deadline = time.monotonic() + self._config.turn_deadline_s
        got, pool, tried, cause = Generated(), first, list[str](), ""
        speech = Speech(self._renderer, call, answer, held=route.version is not None)
        attempt = 0
        while True:
            if len(tried) >= self._config.pool_attempts:
                raise broke_off(f"{len(tried)} attempts failed, the last at {cause}")
            had = len(got.ids)
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    if attempt > 0:
                        pool = await self._another(route, tried, deadline)
                    await self._from_pool(pool, _rest(request, got, attempt), got, route, speech)
            except PoolFailed as failure:
                if failure.gone:
                    self._router.broke_off(pool)
                # What brought tokens is no failure: a swap without proof ends running requests.
                tried = [*(tried if len(got.ids) <= had else ()), pool.pool]
                cause = f"pool {pool.pool}: {failure.cause}"
                _finish_early(got, request)
            except TimeoutError:
                raise broke_off(f"{self._config.turn_deadline_s:g} s passed") from None
            if got.finish_reason is not None:
                got.pool = pool.pool
                speech.end()
                return got
            self._metrics.continued += 1
            attempt += 1

    async def _from_pool(
        self,
        pool: PoolReport,
        request: GenerateRequest,
        got: Generated,
        route: Route,
        speech: Speech,
    ) -> None:
        """Adds a pool's chunks to `got`; raises `PoolFailed` if they end without an end."""
        stream, whole = self._pools.stream(pool.url, request), False
        try:
            with self._router.sending(pool, route):
                async for chunk in stream:
                    if not route.allows(chunk.version) and chunk.ids:
                        raise self._wrong_version(chunk, got, route, speech, pool)
                    taken = speech.say(chunk.ids, chunk.version)
                    got.add(_first(chunk, taken), self._renderer.vocab_size)
                    if speech.stopped is not None:
                        got.finish_reason = FinishReason.STOP
                        return
                    if chunk.finish_reason is not None:
                        # Read on to the end of the body, or the connection could not be used again.
                        got.finish_reason, whole = _own_end(chunk.finish_reason), True
                    elif speech.over_budget:  # other calls of the rollout have used it up as well
                        got.finish_reason = FinishReason.LENGTH
                        return
            if got.finish_reason is None:
                raise PoolFailed("the stream ended without an end", gone=True)
        finally:
            await stream.aclose()
            if not whole:
                self._pools.cancel(pool.url, request.request_id)

    def _wrong_version(
        self, chunk: GenerateChunk, got: Generated, route: Route, speech: Speech, pool: PoolReport
    ) -> PoolFailed:
        if route.version is not None:
            got.forget()
            speech.forget()
        self._router.broke_off(pool)  # until its next report tells what it serves
        return PoolFailed(f"it answered by version {chunk.version}", gone=False)

    async def _another(self, route: Route, tried: list[str], deadline: float) -> PoolReport:
        wait_s = max(0.0, deadline - time.monotonic())
        if route.version is not None:
            wait_s = min(wait_s, self._config.eval_wait_s)
        try:
            pool = await self._router.choose(route, wait_s=wait_s, avoid=tried[-1:])
        except Refusal as refusal:
            raise broke_off(refusal.message) from refusal
        if pool.pool in tried:
            await asyncio.sleep(min(1.0, _PAUSE_S * 2 ** len(tried)))
        return pool


def _first(chunk: GenerateChunk, taken: int) -> GenerateChunk:
    """A chunk without what came after a stop string."""
    if taken == len(chunk.ids):
        return chunk
    cut = {"ids": chunk.ids[:taken], "logprobs": chunk.logprobs[:taken]}
    return chunk.model_copy(update=cut)


def _own_end(reason: FinishReason) -> FinishReason:
    """A request that we did not cancel must not look like a short answer to the agent."""
    if reason is FinishReason.CANCELLED:
        raise PoolFailed("it cancelled the request", gone=False)
    return reason


def _rest(request: GenerateRequest, got: Generated, attempt: int) -> GenerateRequest:
    """The request for what is still missing."""
    if attempt == 0:
        return request
    return request.model_copy(
        update={
            "request_id": f"{request.request_id}.{attempt}",
            "prompt_ids": (*request.prompt_ids, *got.ids),
            "max_tokens": request.max_tokens - len(got.ids),
        }
    )


def _finish_early(got: Generated, request: GenerateRequest) -> None:
    """A pool may die between the last token and the last line."""
    if got.finish_reason is None and got.ids:
        if got.ids[-1] in request.stop_ids:
            got.finish_reason = FinishReason.STOP
        elif len(got.ids) >= request.max_tokens:
            got.finish_reason = FinishReason.LENGTH
