"""An answer while it grows: one writer (the turn), any number of listeners (client, retries)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tradewind.gateway.refusal import Refusal
from tradewind.types import FinishReason


class Listener:
    """Reads the pieces of one answer from the first on, at its own pace."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._position = 0
        self._event = asyncio.Event()

    def poke(self) -> None:
        """Wakes the listener."""
        self._event.set()

    async def wait(self, seconds: float) -> bool:
        """Until something changed: False; or nothing did for `seconds`: True."""
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return True
        self._event.clear()
        return False

    def take(self) -> str:
        """The text that arrived since the last call."""
        pieces = self._answer.pieces[self._position :]
        self._position += len(pieces)
        return "".join(pieces)


class Answer:
    """Text pieces, then an end: `finish` or `fail`."""

    def __init__(self, answer_id: str) -> None:
        self.id = answer_id
        """Turn id once the intent is written; a request id for users."""
        self.created = time.time()
        self.pieces: list[str] = []
        self.prompt_tokens = 0
        self.output_tokens = 0
        self.version: int | None = None
        """Of the newest token."""
        self.finish_reason: FinishReason | None = None
        self.refusal: Refusal | None = None
        self.first_token_at: float | None = None
        """Unix seconds."""
        self.recorded = False
        """Whether the ledger holds it as a finished turn."""
        self.delivered = False
        """Whether some listener was given all of it."""
        self.task: asyncio.Task[None] | None = None
        """The turn that writes it; None once it is over."""
        self.streamed = False
        """Whether some piece was already shown to a client."""
        self._listeners: set[Listener] = set()

    @property
    def text(self) -> str:
        """All pieces so far."""
        return "".join(self.pieces)

    @property
    def ended(self) -> bool:
        """Whether nothing will be added."""
        return self.finish_reason is not None or self.refusal is not None

    @property
    def heard(self) -> bool:
        """Whether a client is still there."""
        return bool(self._listeners)

    @contextmanager
    def listening(self) -> Iterator[Listener]:
        """A listener for as long as its client is there."""
        listener = Listener(self)
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)

    def heed(self, tokens: int, version: int) -> None:
        """Counts new tokens, before their text is known."""
        self.first_token_at = self.first_token_at or time.time()
        self.output_tokens += tokens
        self.version = version

    def add(self, piece: str) -> None:
        """More text."""
        if piece:
            self.pieces.append(piece)
            self._poke()

    def finish(self, reason: FinishReason) -> None:
        """The answer is whole."""
        self.finish_reason = reason
        self._poke()

    def fail(self, refusal: Refusal) -> None:
        """The answer will not come, or not be whole."""
        if not self.ended:
            self.refusal = refusal
            self._poke()

    def _poke(self) -> None:
        for listener in self._listeners:
            listener.poke()
