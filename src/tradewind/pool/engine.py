"""The contract between the pool process and whatever decodes tokens. Torch-free.

    pool server ── submit, cancel ──►┌────────┐
    receiver    ── swap, score ─────►│ Engine │── on_chunk (engine thread) ──► server
    reporter    ── load ────────────►└────────┘

An engine runs in a thread (or process) of its own between `start` and `stop`. Every request that
was submitted gets exactly one last chunk: one with a `finish_reason` or one with an `error`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np

from tradewind.types import GenerateChunk, GenerateRequest, Record, RefusedWeights
from tradewind.weights.digest import Leaf

OnChunk = Callable[[GenerateChunk], None]
"""Runs in the engine thread: it must return at once and must not call back into the engine."""

Bits = Mapping[str, np.ndarray]
"""Tensors in checkpoint names and shapes; bf16 as `uint16` bits, fp16 and fp32 as themselves."""


class ByteProof(StrEnum):
    """Where the digests of what is served come from."""

    READ_BACK = "read back from the engine"
    """The tensors that are multiplied, taken out of the engine again."""
    AS_LOADED = "of what its loader was given"
    """The engine packs weights and cannot give them back: the bytes were hashed in its process
    just before its loader read them there. What the loader made of them shows in `score` only."""


@dataclass(frozen=True, slots=True)
class Served:
    """Digests of the served tensors, under checkpoint names. Those that the engine never reads (a
    tied head that is stored twice) may be left out.
    """

    leaves: Mapping[str, Leaf]
    proof: ByteProof


class PutBack(RefusedWeights):
    """A swap failed after it had begun. The engine has its old weights again, unproven, and decodes
    nothing before the next swap.
    """


def user_share(total: int) -> int:
    """What is kept free for users beyond a limit of `total` (promise U1)."""
    return max(1, total // 8)


class EngineLoad(Record):
    """What an engine is doing now.

    Example: `EngineLoad(running=8, waiting=2, max_batch=64, tokens_per_s=310.5, dtype="float32",
    version=3)`.
    """

    running: int
    """Requests that hold KV memory."""
    waiting: int
    """Requests that were submitted and not admitted yet."""
    max_batch: int
    """The most requests that can run at once."""
    tokens_per_s: float
    """Sampled tokens, over the last ten seconds."""
    dtype: str
    """Of the arithmetic, for example `bfloat16`; the served weights are those of `served()`."""
    version: int
    """Weight version by which the next token will be decoded."""
    held: int = 0
    """Tokens that were sampled and leave when their version is proven; see `gate.py`."""
    error: str | None = None
    """Why the engine is dead; None while it lives. A dead engine never comes back."""


class Engine(Protocol):
    """Decodes token ids. All methods are thread-safe."""

    def start(self) -> None:
        """Starts the engine thread; returns when requests can be submitted."""

    def submit(self, request: GenerateRequest, on_chunk: OnChunk) -> None:
        """Queues a request. Never raises for a request that cannot be served (too long, id outside
        the vocabulary, engine dead or stopped): that is told by an error chunk.
        """

    def cancel(self, request_id: str) -> None:
        """Ends a request with a `cancelled` chunk before the next step. Unknown ids are ignored."""

    def swap(self, changed: Bits, version: int, afresh: bool = False) -> float:
        """Overwrites tensors between two decode steps; running requests go on with their old KV.

        `afresh`: `changed` holds all tensors, and what the engine holds is in doubt, so none of it
        may be built upon.
        Blocks until `version` is active. Returns the seconds for which decoding stood still.
        From its first step on, what `version` samples carries its number. Raises `UserError`
        (nothing applied) for an unknown name, another shape or another dtype, `PutBack` after a
        failure, and `Stalled` if the engine is dead or does not answer.
        """

    def served(self) -> Served:
        """Digests of what is being served: the pool's first proof.

        Blocks until they are computed; decoding stands still for copies at most. Raises `Stalled`
        if the engine is dead or does not answer.
        """

    def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """Natural-log probability of each id given those before it, from the second id on, at
        temperature 1, as the active version is really computed: the pool's second proof.

        Blocks until a moment between two decode steps. Running requests and the prefix cache are
        neither read nor changed. Numbers that are not finite are returned as they are. Raises
        `UserError` for a sequence that the model cannot read, `Stalled` if the engine is dead or
        does not answer.
        """

    def load(self) -> EngineLoad:
        """A snapshot; never blocks and never raises. A dead engine says so in `error`."""

    def stop(self) -> None:
        """Ends all requests with a `cancelled` chunk and joins the thread. Idempotent."""
