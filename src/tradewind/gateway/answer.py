"""Answers while they grow: one writer each (its turn), any number of listeners."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tradewind.gateway.meter import Meter
from tradewind.gateway.refusal import Refusal
from tradewind.render.toolcalls import Said
from tradewind.types import FinishReason, Json


class Listener:
    """Reads the pieces of a reply from the first on, at its own pace."""

    def __init__(self, reply: Reply) -> None:
        self._answers = reply.answers
        self._positions = [0] * len(reply.answers)
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

    def take(self) -> list[tuple[int, str]]:
        """The texts that arrived since the last call, each with the number of its answer."""
        found = []
        for number, answer in enumerate(self._answers):
            pieces = answer.pieces[self._positions[number] :]
            self._positions[number] += len(pieces)
            if pieces:
                found.append((number, "".join(pieces)))
        return found


class Answer:
    """Text pieces, then an end: `finish` or `fail`."""

    def __init__(self, answer_id: str, meter: Meter | None = None) -> None:
        self.id = answer_id
        """Turn id once the intent is written; a request id for users."""
        self._meter = meter or Meter()
        self.created = time.time()
        self.pieces: list[str] = []
        """Of its content; tool calls come with the end."""
        self.tool_calls: tuple[Json, ...] = ()
        self.stop_string: str | None = None
        """The stop string before which the text was cut."""
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
    def over_budget(self) -> bool:
        """Whether its rollout may sample nothing more."""
        return self._meter.left <= 0

    @property
    def ended(self) -> bool:
        """Whether nothing will be added."""
        return self.finish_reason is not None or self.refusal is not None

    @property
    def heard(self) -> bool:
        """Whether a client is still there."""
        return bool(self._listeners)

    def heed(self, tokens: int, version: int) -> None:
        """Counts new tokens, before their text is known."""
        self.first_token_at = self.first_token_at or time.time()
        self.output_tokens += tokens
        self._meter.count(tokens)
        self.version = version

    def add(self, piece: str) -> None:
        """More text."""
        if piece:
            self.pieces.append(piece)
            self._poke()

    def call(self, said: Said) -> None:
        """The tool calls of the whole answer; their ids follow from the answer's."""
        ids = [_call_id(self.id, number) for number in range(len(said.calls))]
        self.tool_calls = tuple(c.to_chat(i) for c, i in zip(said.calls, ids, strict=True))

    def finish(self, reason: FinishReason) -> None:
        """The answer is whole."""
        self.finish_reason = reason
        self._poke()

    def fail(self, refusal: Refusal) -> None:
        """The answer will not come, or not be whole."""
        if not self.ended:
            self.refusal = refusal
            self._poke()

    def listen(self, listener: Listener) -> None:
        """Pokes it at every change."""
        self._listeners.add(listener)

    def unlisten(self, listener: Listener) -> None:
        """Its client has all, or went away."""
        self._listeners.discard(listener)

    def _poke(self) -> None:
        for listener in self._listeners:
            listener.poke()


class Reply:
    """The answers to one call: one, or as many as it asked for."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self.answers = tuple(answers)

    @property
    def first(self) -> Answer:
        """The one that names the reply."""
        return self.answers[0]

    @property
    def ended(self) -> bool:
        """Whether nothing will be added."""
        return all(answer.ended for answer in self.answers)

    @property
    def refusal(self) -> Refusal | None:
        """Of the first answer that failed: a reply is whole or refused."""
        return next((a.refusal for a in self.answers if a.refusal is not None), None)

    @property
    def begun(self) -> bool:
        """Whether there is text to show."""
        return any(answer.pieces for answer in self.answers)

    @property
    def heard(self) -> bool:
        """Whether a client is still there."""
        return self.first.heard

    @property
    def delivered(self) -> bool:
        """Whether some client was given all of it."""
        return all(answer.delivered for answer in self.answers)

    @property
    def output_tokens(self) -> int:
        """Of all answers."""
        return sum(answer.output_tokens for answer in self.answers)

    @contextmanager
    def listening(self) -> Iterator[Listener]:
        """A listener for as long as its client is there."""
        listener = Listener(self)
        for answer in self.answers:
            answer.listen(listener)
        try:
            yield listener
        finally:
            for answer in self.answers:
                answer.unlisten(listener)


def _call_id(answer_id: str, number: int) -> str:
    """The same after a restart of the gateway, so that results find their call."""
    return "call_" + hashlib.sha256(f"{answer_id} {number}".encode()).hexdigest()[:24]
