"""Uploading a delta: what differs between two states, coded, in frames.

    what changed ──► pieces ──► frames/<digest>          a rank's rows, or whole tensors
    several ranks' uploads ──► merged ──► one manifest

Frames are durable when `upload` returns; what names them (a manifest, a shortcut) is written after
it. Doing it again uploads nothing twice, for a frame is named by its content.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tradewind.types.errors import Conflict
from tradewind.types.record import Record
from tradewind.weights.bucket import Bucket
from tradewind.weights.chain import read_frame
from tradewind.weights.codec import PIECE_BYTES, encode_piece
from tradewind.weights.digest import Leaf, digest_bytes
from tradewind.weights.manifest import Frame, Piece, TensorEntry
from tradewind.weights.state import State
from tradewind.weights.tensors import Array

FRAME_BYTES = 8 * 2**20
"""A frame is closed when it has grown to this size."""


@dataclass(frozen=True, slots=True)
class Change:
    """Consecutive items of a tensor that are coded together: all of them, or a rank's rows."""

    name: str
    old: Array
    """Flat."""
    new: Array
    tag: str
    begin: int = 0
    """Byte of the tensor at which they begin."""


class Uploaded(Record):
    """Pieces whose frames are in the bucket."""

    pieces: dict[str, tuple[Piece, ...]]
    """By tensor."""
    frames: tuple[Frame, ...]

    @property
    def size(self) -> int:
        """Bytes of all frames."""
        return sum(frame.size for frame in self.frames)

    def entries(self, leaves: Mapping[str, Leaf]) -> tuple[TensorEntry, ...]:
        """The entries of the tensors that have pieces, as they are in `leaves`."""
        return tuple(
            entry_of(name, leaves[name], self.pieces[name]) for name in sorted(self.pieces)
        )


def changes_of(before: State, after: State) -> list[Change]:
    """The tensors that differ, whole, by name."""
    return [
        Change(n, before.tensors[n].reshape(-1), after.tensors[n].reshape(-1), after.tensors.tag(n))
        for n in sorted(after.leaves)
        if after.leaves[n] != before.leaves[n]
    ]


def upload(
    bucket: Bucket,
    changes: Iterable[Change],
    *,
    threads: int = 1,
    piece_bytes: int = PIECE_BYTES,
) -> Uploaded:
    """Codes the new items given the old ones, sorted by name, and uploads them.

    Frames go out while later pieces are coded by `threads` threads. Raises UserError if the bucket
    cannot be written, RefusedWeights if a frame of an earlier attempt is damaged there.
    """
    ordered = sorted(changes, key=lambda change: change.name)
    frames: list[Frame] = []
    open_frame = bytearray()
    pieces: dict[str, list[Piece]] = {change.name: [] for change in ordered}
    with ThreadPoolExecutor(threads) as pool:
        for job, coded in pool.map(_encode, _jobs(ordered, piece_bytes)):
            pieces[job.name].append(
                Piece(
                    frame=len(frames),
                    offset=len(open_frame),
                    size=len(coded),
                    begin=job.begin,
                    raw=job.new.nbytes,
                )
            )
            open_frame += coded
            if len(open_frame) >= FRAME_BYTES:
                frames.append(_put_frame(bucket, bytes(open_frame)))
                open_frame.clear()
    if open_frame:
        frames.append(_put_frame(bucket, bytes(open_frame)))
    return Uploaded(
        pieces={name: tuple(places) for name, places in pieces.items()}, frames=tuple(frames)
    )


def merged(parts: Sequence[Uploaded]) -> Uploaded:
    """Several ranks' uploads as one; frames in the order in which the pieces use them."""
    names = sorted({name for part in parts for name in part.pieces})
    numbers: dict[tuple[int, int], int] = {}
    pieces: dict[str, tuple[Piece, ...]] = {}
    for name in names:
        places = []
        for index, part in enumerate(parts):
            for piece in part.pieces.get(name, ()):
                number = numbers.setdefault((index, piece.frame), len(numbers))
                places.append(piece.model_copy(update={"frame": number}))
        pieces[name] = tuple(sorted(places, key=lambda piece: piece.begin))
    frames = tuple(parts[index].frames[frame] for index, frame in numbers)
    return Uploaded(pieces=pieces, frames=frames)


def entry_of(name: str, leaf: Leaf, pieces: tuple[Piece, ...] = ()) -> TensorEntry:
    """The entry of a tensor."""
    return TensorEntry(
        name=name, dtype=leaf.dtype, shape=leaf.shape, digest=leaf.digest, pieces=pieces
    )


def _jobs(changes: Sequence[Change], piece_bytes: int) -> Iterator[Change]:
    for change in changes:
        items = piece_bytes // change.new.itemsize
        for first in range(0, change.new.size, items):
            cut = slice(first, first + items)
            begin = change.begin + first * change.new.itemsize
            yield Change(change.name, change.old[cut], change.new[cut], change.tag, begin)


def _encode(job: Change) -> tuple[Change, bytes]:
    return job, encode_piece(job.old, job.new, job.tag)


def _put_frame(bucket: Bucket, data: bytes) -> Frame:
    frame = Frame(digest=digest_bytes(data), size=len(data))
    try:
        bucket.put_new(frame.key, data)
    except Conflict:
        # an earlier attempt uploaded it; what stands there must be whole
        read_frame(bucket, frame)
    return frame
