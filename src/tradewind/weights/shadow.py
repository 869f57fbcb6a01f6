"""The shadow: a state in the making, decoded beside the one it starts from."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tradewind.types.errors import RefusedWeights
from tradewind.weights.codec import decode_piece
from tradewind.weights.digest import tensor_digest
from tradewind.weights.manifest import Delta, TensorEntry
from tradewind.weights.state import State
from tradewind.weights.tensors import Array


class Shadow:
    """Starts at `state`, whose arrays are never written to; every `apply` leads it on.

    `threads` decode and hash at the same time.
    """

    def __init__(self, state: State, threads: int = 1) -> None:
        self.state = state
        self._threads = threads
        self._own: dict[str, Array] = {}

    def apply(self, delta: Delta, frames: Sequence[bytes]) -> None:
        """Goes where `delta` leads; `frames` are the bytes of its frames, verified.

        Raises RefusedWeights for a piece, tensor or state that is not what the delta says; the
        shadow is of no use then.
        """
        views = [memoryview(frame) for frame in frames]

        def restore(entry: TensorEntry) -> Array:
            return self._restore(delta, entry, views)

        with ThreadPoolExecutor(self._threads) as pool:
            arrays = list(pool.map(restore, delta.tensors))
        # those between share the shadow's arrays; only the last state is kept
        self._own |= {e.name: a for e, a in zip(delta.tensors, arrays, strict=True)}
        leaves = {entry.name: entry.leaf for entry in delta.tensors}
        changed = {name: self._own[name] for name in leaves}
        self.state = self.state.changed(delta.version, changed, leaves)
        if self.state.state_id != delta.state_id:
            raise refused(
                f"version {delta.version} decodes to another state than its manifest says",
                self.state.state_id,
            )

    def _restore(self, delta: Delta, entry: TensorEntry, frames: list[memoryview]) -> Array:
        own = self._own.get(entry.name)
        source = self.state.tensors[entry.name] if own is None else own
        out = np.empty_like(source) if own is None else own
        before, after = source.reshape(-1), out.reshape(-1)
        if own is None and sum(piece.raw for piece in entry.pieces) < out.nbytes:
            after[:] = before  # what no piece restores
        for piece in entry.pieces:
            cut = slice(piece.begin // out.itemsize, (piece.begin + piece.raw) // out.itemsize)
            coded = frames[piece.frame][piece.offset : piece.offset + piece.size]
            decode_piece(coded, before[cut], after[cut], entry.dtype)
        if tensor_digest(out) != entry.digest:
            raise refused(f"version {delta.version} decodes wrongly", entry.name)
        return out


def check_fit(delta: Delta, state: State) -> None:
    """Every tensor of the delta is one of ours, with our dtype and shape; raises RefusedWeights."""
    for entry in delta.tensors:
        ours = state.leaves.get(entry.name)
        if ours is None:
            raise refused(f"version {delta.version} has a tensor that we do not", entry.name)
        if (ours.dtype, ours.shape) != (entry.dtype, entry.shape):
            raise refused(
                f"version {delta.version} has {entry.name} as {entry.dtype} "
                f"{list(entry.shape)}, we hold {ours.dtype} {list(ours.shape)}",
                None,
            )


def refused(what: str, value: object) -> RefusedWeights:
    """A version that this pool does not take."""
    return RefusedWeights(
        what, value=value, fix="publish the version again, or restart the pool with another folder"
    )
