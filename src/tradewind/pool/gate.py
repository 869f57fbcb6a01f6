"""The gate: no token leaves a pool before the version that sampled it is proven (promise W5).

    server   ── submit, cancel ──►┌──────┐──► engine
    server   ◄──────── chunks ────│ gate │◄── chunks
    receiver ── swap, opened, ───►└──────┘──► engine
                withdrawn

A swap closes the gate for the new version's number: chunks that carry it wait here, in order, while
the engine decodes on. With the proof they leave together. If there is none, every request that the
engine had is ended with an error, for what it sampled or attends to may be the version's; whoever
asked goes on elsewhere from the tokens that it got, as after a broken line. Requests that come then
wait until a proven version is back.

While the gate is closed an empty chunk leaves every second for each request, also for those that
the engine has finished or not begun, so that nobody takes the pool for silent.

How long a chunk waits is bounded by the proof: an engine that does not answer it in its deadline is
lost, and the process ends. What waits is bounded by what the running requests may still sample.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from tradewind.pool.engine import Bits, Engine, EngineLoad, OnChunk, PutBack, Served
from tradewind.types import FinishReason, GenerateChunk, GenerateRequest, UserError

log = logging.getLogger(__name__)

SIGN_S = 1.0
"""Between two signs of life, in seconds; gateways wait for `pool_silence_s`, a minute."""


@dataclass(eq=False)
class _Entry:
    """One request between its first and its last chunk."""

    request: GenerateRequest
    on_chunk: OnChunk
    waiting: list[GenerateChunk] = field(default_factory=list)
    ended: bool = False
    """Whether the listener has got the last chunk."""

    def tell(self, chunk: GenerateChunk) -> None:
        """To the listener; nothing after the last one."""
        if not self.ended:
            self.ended = chunk.finish_reason is not None or chunk.error is not None
            self.on_chunk(chunk)


class Gate:
    """An `Engine` around an engine, whose unproven tokens stay inside. All methods are thread-safe;
    `swap`, `opened` and `withdrawn` are called by the receiver's thread.
    """

    def __init__(self, engine: Engine, sign_s: float = SIGN_S) -> None:
        self._engine, self._sign_s = engine, sign_s
        self._open = threading.Event()
        self._open.set()
        self._lock = threading.Lock()
        self._entries: set[_Entry] = set()
        self._parked: list[_Entry] = []
        """Not given to the engine: they came while no proven version was there."""
        self._closed_for: int | None = None
        self._closed_at = 0.0
        self._withdrawn: str | None = None
        self._held = 0

    def start(self) -> None:
        """See `Engine`."""
        self._engine.start()

    def submit(self, request: GenerateRequest, on_chunk: OnChunk) -> None:
        """See `Engine`. Chunks of an unproven version come when it is proven."""
        entry = _Entry(request, on_chunk)
        with self._lock:
            if self._withdrawn is not None:
                self._parked.append(entry)
                return
            self._entries.add(entry)
        self._submit(entry)

    def cancel(self, request_id: str) -> None:
        """See `Engine`."""
        with self._lock:
            parked = next((e for e in self._parked if e.request.request_id == request_id), None)
            if parked is not None:
                self._parked.remove(parked)
                parked.tell(_last(self._engine.load().version))
                return
        self._engine.cancel(request_id)

    def swap(self, changed: Bits, version: int, afresh: bool = False) -> float:
        """See `Engine`. What `version` samples is held back from now until `opened`."""
        with self._lock:
            closed_before = self._closed_for
            if closed_before is None:
                self._closed_at = time.monotonic()
                self._open.clear()
                threading.Thread(target=self._give_signs, name="gate", daemon=True).start()
            self._closed_for = version
        try:
            return self._engine.swap(changed, version, afresh)
        except PutBack:
            raise
        except UserError:  # nothing was applied
            with self._lock:
                self._closed_for = closed_before
                if closed_before is None:
                    self._open.set()
            raise

    def opened(self) -> float:
        """The engine is proven to serve a version: everything leaves. Returns the seconds since the
        swap that closed the gate; 0 if it was open.
        """
        with self._lock:
            seconds = time.monotonic() - self._closed_at if self._closed_for is not None else 0.0
            self._closed_for, self._withdrawn, self._held = None, None, 0
            self._open.set()
            for entry in [*self._entries]:
                for chunk in entry.waiting:
                    entry.tell(chunk)
                entry.waiting.clear()
                self._forget_ended(entry)
            parked, self._parked = self._parked, []
            self._entries.update(parked)
        for entry in parked:
            self._submit(entry)
        return seconds

    def withdrawn(self, why: str) -> None:
        """The version in the engine has no proof: whoever it may have answered is told `why`."""
        with self._lock:
            self._withdrawn = why
            entries = [*self._entries]
            self._entries.clear()
            self._held = 0
            for entry in entries:
                entry.waiting.clear()
                entry.tell(_error(why, self._closed_for or 0))
        for entry in entries:
            self._engine.cancel(entry.request.request_id)
        if entries:
            log.warning("%d requests were ended before their end: %s", len(entries), why)

    def served(self) -> Served:
        """See `Engine`."""
        return self._engine.served()

    def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `Engine`."""
        return self._engine.score(sequences)

    def load(self) -> EngineLoad:
        """See `Engine`; with the tokens that are held back."""
        load = self._engine.load()
        with self._lock:
            waiting = load.waiting + len(self._parked)
            return load.model_copy(update={"held": self._held, "waiting": waiting})

    def stop(self) -> None:
        """See `Engine`. What is held back is never told."""
        with self._lock:
            self._open.set()
            if self._closed_for is not None:
                for entry in (*self._entries, *self._parked):
                    entry.tell(_last(self._closed_for))
        self._engine.stop()

    def _submit(self, entry: _Entry) -> None:
        self._engine.submit(entry.request, lambda chunk: self._hear(entry, chunk))
        with self._lock:
            overtaken = entry.ended
        if overtaken:  # by a withdrawal, whose cancellation came before the submission
            self._engine.cancel(entry.request.request_id)

    def _hear(self, entry: _Entry, chunk: GenerateChunk) -> None:
        """In the engine's thread."""
        with self._lock:
            if entry.ended:
                return
            if entry.waiting or chunk.version == self._closed_for:
                entry.waiting.append(chunk)
                self._held += len(chunk.ids)
                return
            entry.tell(chunk)
            self._forget_ended(entry)

    def _give_signs(self) -> None:
        """In a thread of its own, from `swap` until the gate is open; receiver and engine may both
        be at the proof.
        """
        while not self._open.wait(self._sign_s):
            with self._lock:
                if self._closed_for is not None:
                    for entry in (*self._entries, *self._parked):
                        entry.tell(_sign(self._closed_for))

    def _forget_ended(self, entry: _Entry) -> None:
        if entry.ended:
            self._entries.discard(entry)


def _sign(version: int) -> GenerateChunk:
    return GenerateChunk(ids=(), logprobs=(), version=version)


def _last(version: int) -> GenerateChunk:
    reason = FinishReason.CANCELLED
    return GenerateChunk(ids=(), logprobs=(), version=version, finish_reason=reason)


def _error(why: str, version: int) -> GenerateChunk:
    return GenerateChunk(ids=(), logprobs=(), version=version, error=why)
