"""Uploading a delta: what differs between two states, coded, in frames.

    before, after ──► changed tensors ──► pieces ──► frames/<digest>

Frames are durable when `upload` returns; what names them (a manifest, a shortcut) is written after
it. Doing it again uploads nothing twice, for a frame is named by its content.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tradewind.types.errors import Conflict
from tradewind.weights.bucket import Bucket
from tradewind.weights.chain import read_frame
from tradewind.weights.codec import PIECE_BYTES, encode_piece
from tradewind.weights.digest import digest_bytes
from tradewind.weights.manifest import Frame, Piece, TensorEntry
from tradewind.weights.state import State
from tradewind.weights.tensors import Array

FRAME_BYTES = 8 * 2**20
"""A frame is closed when it has grown to this size."""


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A delta whose frames are in the bucket."""

    tensors: tuple[TensorEntry, ...]
    """Those that differ, by name, with the places of their pieces."""
    frames: tuple[Frame, ...]
    piece_bytes: int
    """Raw bytes of a piece; the last one of a tensor may be shorter."""

    @property
    def size(self) -> int:
        """Bytes of all frames."""
        return sum(frame.size for frame in self.frames)


def upload(
    bucket: Bucket,
    before: State,
    after: State,
    *,
    threads: int = 1,
    piece_bytes: int = PIECE_BYTES,
) -> Uploaded:
    """Codes `after` given `before`, which has the same names, dtypes and shapes, and uploads it.

    Frames go out while later pieces are coded by `threads` threads. Raises UserError if the bucket
    cannot be written, RefusedWeights if a frame of an earlier attempt is damaged there.
    """
    changed = [n for n in sorted(after.leaves) if after.leaves[n] != before.leaves[n]]
    frames: list[Frame] = []
    open_frame = bytearray()
    pieces: dict[str, list[Piece]] = {name: [] for name in changed}
    with ThreadPoolExecutor(threads) as pool:
        for name, coded in pool.map(_encode, _jobs(before, after, changed, piece_bytes)):
            place = Piece(frame=len(frames), offset=len(open_frame), size=len(coded))
            pieces[name].append(place)
            open_frame += coded
            if len(open_frame) >= FRAME_BYTES:
                frames.append(_put_frame(bucket, bytes(open_frame)))
                open_frame.clear()
    if open_frame:
        frames.append(_put_frame(bucket, bytes(open_frame)))
    return Uploaded(
        tensors=tuple(entry_of(after, name, tuple(pieces[name])) for name in changed),
        frames=tuple(frames),
        piece_bytes=piece_bytes,
    )


def entry_of(state: State, name: str, pieces: tuple[Piece, ...] = ()) -> TensorEntry:
    """The entry of tensor `name` as it is in `state`."""
    leaf = state.leaves[name]
    return TensorEntry(
        name=name, dtype=leaf.dtype, shape=leaf.shape, digest=leaf.digest, pieces=pieces
    )


_Job = tuple[str, Array, Array, str]
"""Name, old items, new items, dtype tag."""


def _jobs(before: State, after: State, changed: list[str], piece_bytes: int) -> Iterator[_Job]:
    for name in changed:
        old, new = before.tensors[name].reshape(-1), after.tensors[name].reshape(-1)
        items = piece_bytes // new.itemsize
        for begin in range(0, new.size, items):
            cut = slice(begin, begin + items)
            yield name, old[cut], new[cut], after.tensors.tag(name)


def _encode(job: _Job) -> tuple[str, bytes]:
    name, old, new, tag = job
    return name, encode_piece(old, new, tag)


def _put_frame(bucket: Bucket, data: bytes) -> Frame:
    frame = Frame(digest=digest_bytes(data), size=len(data))
    try:
        bucket.put_new(frame.key, data)
    except Conflict:
        # an earlier attempt uploaded it; what stands there must be whole
        read_frame(bucket, frame)
    return frame
