"""Published formats for sparse updates of bf16 weights, emulated: our words, our code, their shape.

Each turns old and new bits into one blob and back. What is left out is kind to them: names, JSON
headers, checksums and containers cost nothing, and streams of one kind are put together before
they are compressed where a format compresses a whole update. Sources, and what the systems
themselves measured, are in the section on `codec.py` in `benchmarks/README.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import zstandard

from tradewind.weights.tensors import Array, TensorSet

LEVEL = 1
"""zstd level of all of them."""


class Format(Protocol):
    """One published way to write an update."""

    name: str
    users: str
    """Systems that ship it."""

    def encode(self, old: TensorSet, new: TensorSet) -> bytes: ...

    def decode(self, blob: bytes, old: TensorSet) -> dict[str, Array]: ...


@dataclass(frozen=True)
class DenseCoo:
    """An int32 index and the new bf16 value of each change: 48 bits, not compressed."""

    name: str = "int32 index + bf16"
    users: str = "TRL, verl, vLLM"

    def encode(self, old: TensorSet, new: TensorSet) -> bytes:
        parts = []
        for index, _, after in changes(old, new):
            parts += [np.uint32(index.size).tobytes(), index.astype("<u4").tobytes()]
            parts.append(after.tobytes())
        return b"".join(parts)

    def decode(self, blob: bytes, old: TensorSet) -> dict[str, Array]:
        reader, out = Reader(blob), copies(old)
        for flat in out.values():
            count = int(reader.take("<u4", 1)[0])
            index = reader.take("<u4", count)
            flat[index] = reader.take("<u2", count)
        return shaped(out, old)


@dataclass(frozen=True)
class Leb128:
    """Gaps as LEB128 varints of one or two bytes and more, then the bf16 values."""

    name: str = "LEB128 gap + bf16"
    users: str = "SparrowRL"

    def encode(self, old: TensorSet, new: TensorSet) -> bytes:
        parts = []
        for index, _, after in changes(old, new):
            parts += [np.uint32(index.size).tobytes(), _varints(gaps(index)), after.tobytes()]
        return b"".join(parts)

    def decode(self, blob: bytes, old: TensorSet) -> dict[str, Array]:
        reader, out = Reader(blob), copies(old)
        for flat in out.values():
            count = int(reader.take("<u4", 1)[0])
            index = positions(reader.varints(count))
            flat[index] = reader.take("<u2", count)
        return shaped(out, old)


@dataclass(frozen=True)
class XorZstd:
    """All bytes of old XOR new, zstd per tensor. `planes`: low bytes before high ones."""

    planes: bool = False
    users: str = "slime, SkyRL, Stitch"

    @property
    def name(self) -> str:
        return "XOR + zstd-1, byte planes" if self.planes else "XOR + zstd-1"

    def encode(self, old: TensorSet, new: TensorSet) -> bytes:
        parts = []
        for name in new:
            difference = (old[name] ^ new[name]).reshape(-1)
            coded = _compress(to_planes(difference) if self.planes else difference.tobytes())
            parts += [np.uint32(len(coded)).tobytes(), coded]
        return b"".join(parts)

    def decode(self, blob: bytes, old: TensorSet) -> dict[str, Array]:
        reader, out = Reader(blob), copies(old)
        for flat in out.values():
            plain = _decompress(reader.take("u1", int(reader.take("<u4", 1)[0])).tobytes())
            flat ^= from_planes(plain) if self.planes else np.frombuffer(plain, "<u2")
        return shaped(out, old)


@dataclass(frozen=True)
class RowsAndColumns:
    """Sorted coordinates: row gaps u8 (i32 where one is wider), column gaps u16 that start anew in
    each row, the new values; zstd over the whole.
    """

    name: str = "COO u8/u16 + bf16, zstd-1"
    users: str = "PULSE v3.1 (grail)"

    def encode(self, old: TensorSet, new: TensorSet) -> bytes:
        streams: dict[str, list[bytes]] = {"head": [], "rows": [], "columns": [], "values": []}
        for (index, _, after), array in zip(changes(old, new), new.values(), strict=True):
            row, column = np.divmod(index, _width(array))
            down = np.diff(row, prepend=0)
            wide = bool(down.size) and int(down.max()) > 0xFF
            same = np.diff(row, prepend=-1) == 0
            across = np.where(same, np.diff(column, prepend=0), column)
            streams["head"].append(np.array([index.size, wide], "<u4").tobytes())
            streams["rows"].append(down.astype("<i4" if wide else "u1").tobytes())
            streams["columns"].append(across.astype("<u2" if _narrow(array) else "<u4").tobytes())
            streams["values"].append(after.tobytes())
        return _compress(b"".join(b"".join(parts) for parts in streams.values()))

    def decode(self, blob: bytes, old: TensorSet) -> dict[str, Array]:
        reader, out = Reader(_decompress(blob)), copies(old)
        heads = [reader.take("<u4", 2) for _ in out]
        rows = [reader.take("<i4" if wide else "u1", int(n)) for n, wide in heads]
        columns = [
            reader.take("<u2" if _narrow(a) else "<u4", int(n))
            for (n, _), a in zip(heads, old.values(), strict=True)
        ]
        for flat, array, down, across in zip(
            out.values(), old.values(), rows, columns, strict=True
        ):
            row = np.cumsum(down, dtype=np.int64)
            # a row's columns: the running sum less what it was before the row
            total = np.cumsum(across, dtype=np.int64)
            first = np.flatnonzero(np.diff(row, prepend=-1))
            before = np.repeat((total - across)[first], np.diff(first, append=row.size))
            flat[row * _width(array) + total - before] = reader.take("<u2", row.size)
        return shaped(out, old)


@dataclass(frozen=True)
class GapXor:
    """Flat gaps, u16 where they fit and u32 where not, and XORed values; zstd over the whole.

    `planes`: the bytes of both split into planes first.
    """

    planes: bool = False
    users: str = "NeMo-RL"

    @property
    def name(self) -> str:
        return "u16 gap + XOR, zstd-1, byte planes" if self.planes else "u16 gap + XOR, zstd-1"

    def encode(self, old: TensorSet, new: TensorSet) -> bytes:
        head, narrow, wide, values = [], [], [], []
        for index, before, after in changes(old, new):
            gap = gaps(index)
            fits = not gap.size or int(gap.max()) <= 0xFFFF
            head.append(np.array([index.size, fits], "<u4"))
            (narrow if fits else wide).append(gap)
            values.append(before ^ after)
        join = to_planes if self.planes else lambda array: array.tobytes()
        kinds = ((head, "<u4"), (narrow, "<u2"), (wide, "<u4"), (values, "<u2"))
        streams = [join(np.concatenate([*s, np.zeros(0, k)]).astype(k)) for s, k in kinds]
        return _compress(b"".join(streams))

    def decode(self, blob: bytes, old: TensorSet) -> dict[str, Array]:
        reader, out = Reader(_decompress(blob)), copies(old)
        head = reader.stream("<u4", 2 * len(out), self.planes).reshape(-1, 2)
        sizes = [int(head[head[:, 1] == fits, 0].sum()) for fits in (1, 0)]
        streams = {1: reader.stream("<u2", sizes[0], self.planes)}
        streams[0] = reader.stream("<u4", sizes[1], self.planes)
        values, used, at = reader.stream("<u2", sum(sizes), self.planes), {0: 0, 1: 0}, 0
        for flat, (count, fits) in zip(out.values(), head.tolist(), strict=True):
            index = positions(streams[fits][used[fits] : used[fits] + count])
            flat[index] ^= values[at : at + count]
            used[fits] += count
            at += count
        return shaped(out, old)


FORMATS: tuple[Format, ...] = (
    DenseCoo(),
    Leb128(),
    XorZstd(),
    XorZstd(planes=True),
    RowsAndColumns(),
    GapXor(),
    GapXor(planes=True),
)


@dataclass
class Reader:
    """Takes arrays off the front of a blob."""

    blob: bytes
    at: int = field(default=0)

    def take(self, kind: str, count: int) -> Array:
        """The next `count` items."""
        items = np.frombuffer(self.blob, kind, count, self.at)
        self.at += items.nbytes
        return items

    def stream(self, kind: str, count: int, planes: bool) -> Array:
        """The next `count` items, as planes or as they are."""
        if not planes:
            return self.take(kind, count)
        itemsize = np.dtype(kind).itemsize
        return from_planes(self.take("u1", count * itemsize).tobytes(), kind)

    def varints(self, count: int) -> Array:
        """The next `count` LEB128 numbers."""
        window = np.frombuffer(self.blob, "u1", min(5 * count, len(self.blob) - self.at), self.at)
        end = np.flatnonzero(window < 0x80)[:count]
        used = int(end[-1]) + 1 if count else 0
        data, owner = window[:used].astype(np.int64), np.zeros(used, np.int64)
        owner[end[:-1] + 1] = 1
        owner = np.cumsum(owner)
        start = np.concatenate([np.zeros(min(count, 1), np.int64), end[:-1] + 1])
        shift = 7 * (np.arange(used) - start[owner]) if count else data
        self.at += used
        numbers = np.zeros(count, np.int64)
        np.add.at(numbers, owner, (data & 0x7F) << shift)
        return numbers


def changes(old: TensorSet, new: TensorSet) -> Iterator[tuple[Array, Array, Array]]:
    """For each tensor: flat indices of its changes (int64), old bits and new bits there."""
    for name in new:
        before, after = old[name].reshape(-1), new[name].reshape(-1)
        index = np.flatnonzero(before != after)
        yield index, before[index], after[index]


def gaps(index: Array) -> Array:
    """Unchanged weights before each change."""
    return np.diff(index, prepend=-1) - 1


def positions(gap: Array) -> Array:
    """The inverse of `gaps`."""
    return np.cumsum(gap.astype(np.int64) + 1) - 1


def to_planes(items: Array) -> bytes:
    """All low bytes, then all of the next, and so on."""
    return np.ascontiguousarray(items.view("u1").reshape(-1, items.itemsize).T).tobytes()


def from_planes(data: bytes, kind: str = "<u2") -> Array:
    """The inverse of `to_planes`."""
    itemsize = np.dtype(kind).itemsize
    planes = np.frombuffer(data, "u1").reshape(itemsize, -1)
    return np.ascontiguousarray(planes.T).reshape(-1).view(kind)


def copies(old: TensorSet) -> dict[str, Array]:
    """A flat copy of each tensor, to write into."""
    return {name: array.reshape(-1).copy() for name, array in old.items()}


def shaped(flat: dict[str, Array], old: TensorSet) -> dict[str, Array]:
    """In the shapes of `old`."""
    return {name: array.reshape(old[name].shape) for name, array in flat.items()}


def _varints(numbers: Array) -> bytes:
    out = np.zeros((numbers.size, 5), np.uint8)
    length = np.ones(numbers.size, np.int64)
    for k in range(5):
        rest = numbers >> (7 * (k + 1))
        out[:, k] = (numbers >> (7 * k) & 0x7F) | np.where(rest > 0, 0x80, 0)
        length[rest > 0] = k + 2
    return out[np.arange(5) < length[:, None]].tobytes()


def _width(array: Array) -> int:
    """Columns: the last axis, all others being rows."""
    return array.shape[-1] if array.ndim else 1


def _narrow(array: Array) -> bool:
    return _width(array) <= 0x10000


def _compress(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=LEVEL, write_checksum=False).compress(data)


def _decompress(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompress(data)
