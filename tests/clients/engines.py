"""Engines that the tests look into: one that says what a script says, one that writes down ids."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable

from tradewind.pool.engine import Engine, EngineLoad, OnChunk
from tradewind.render.renderer import Renderer
from tradewind.types import FinishReason, GenerateChunk, GenerateRequest


class Answering:
    """Says what a function makes of the prompt's text."""

    def __init__(self, renderer: Renderer, answer: Callable[[str], str]) -> None:
        self._renderer, self._answer = renderer, answer
        self._lock = threading.Lock()

    def submit(self, request: GenerateRequest, on_chunk: OnChunk) -> None:
        with self._lock:
            text = self._answer(self._renderer.decode(request.prompt_ids))
        ids = (*self._renderer.encode(text), self._renderer.stop_ids[-1])
        chunk = GenerateChunk(
            ids=ids, logprobs=(-0.5,) * len(ids), version=0, finish_reason=FinishReason.STOP
        )
        on_chunk(chunk)

    def cancel(self, request_id: str) -> None:
        """Every request has ended already."""

    def load(self) -> EngineLoad:
        return EngineLoad(
            running=0, waiting=0, max_batch=64, tokens_per_s=0.0, dtype="float32", version=0
        )

    def start(self) -> None:
        """It has no thread."""

    def stop(self) -> None:
        """It has no thread."""


class Scripted(Answering):
    """Says one text after the other, whatever it is asked."""

    def __init__(self, renderer: Renderer, texts: Iterable[str]) -> None:
        left = deque(texts)
        super().__init__(renderer, lambda _: left.popleft())


class Watched:
    """An engine, and the ids that it gave for each request."""

    def __init__(self, engine: Engine) -> None:
        self.inner = engine
        self.asked: dict[str, tuple[int, ...]] = {}
        self.gave: dict[str, list[int]] = {}

    def submit(self, request: GenerateRequest, on_chunk: OnChunk) -> None:
        self.asked[request.request_id] = request.prompt_ids
        given = self.gave.setdefault(request.request_id, [])

        def heard(chunk: GenerateChunk) -> None:
            given.extend(chunk.ids)
            on_chunk(chunk)

        self.inner.submit(request, heard)

    def __getattr__(self, name: str):
        return getattr(self.inner, name)
