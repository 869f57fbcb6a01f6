"""A parcel: tensors, or changed positions of tensors, in one file that says its own digests.

    "TWPARCEL"  length of the header (u64)  header (JSON)  parts, each at a multiple of 64 bytes

    header   [{"name", "tag", "shape", "indices": part or null, "values": part}, ...]
    part     [offset, bytes, digest as that of a tensor: so whole tensors are proven by it]

The parcel's digest is that of its header, which holds the digests of all parts, so one pass over
the file verifies it. Written by the pool, read by vLLM's worker: numpy, BLAKE3 and pydantic only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import blake3
import numpy as np

from tradewind.weights.digest import tensor_digest
from tradewind.weights.tensors import STORAGE, Array, raw

MAGIC = b"TWPARCEL"
ALIGN = 64
MAX_HEADER = 256 * 2**20
INDEX = np.dtype("<i4")

Part = tuple[int, int, str]
"""Offset, bytes, digest."""


class DamagedParcel(ValueError):
    """The file is not the parcel that was announced."""


@dataclass(frozen=True, slots=True)
class Item:
    """One tensor: whole if `indices` is None, else its values at flat `indices`, ascending."""

    name: str
    tag: str
    """Dtype tag of the safetensors format."""
    shape: tuple[int, ...]
    indices: Array | None
    values: Array
    digest: str = ""
    """Of `values`, once it has been read; a whole tensor's is that of its leaf."""


def write(path: Path, items: Iterable[Item]) -> str:
    """Writes a parcel readable by its owner only, and returns its digest. Raises OSError."""
    rows: list[dict[str, object]] = []
    with path.open("xb") as file:
        path.chmod(0o600)
        parts: list[Array] = []
        offset = 0
        for item in items:
            row: dict[str, object] = {"name": item.name, "tag": item.tag, "shape": item.shape}
            for key, array in (("indices", item.indices), ("values", item.values)):
                if array is None:
                    row[key] = None
                    continue
                data = raw(np.ascontiguousarray(array))
                row[key] = [offset, data.size, tensor_digest(data)]
                offset += _padded(data.size)
                parts.append(data)
            rows.append(row)
        header = json.dumps(rows, separators=(",", ":")).encode()
        file.write(MAGIC + len(header).to_bytes(8, "little") + header)
        _pad(file)
        for data in parts:
            file.write(data.data)
            _pad(file)
    return blake3.blake3(header).hexdigest()


def read(path: Path, digest: str) -> list[Item]:
    """Maps a parcel and verifies every byte of it; raises DamagedParcel."""
    whole = np.memmap(path, np.uint8, mode="c")
    start = len(MAGIC) + 8
    head = bytes(whole[:start])
    length = int.from_bytes(head[len(MAGIC) :], "little")
    if head[: len(MAGIC)] != MAGIC or length > min(MAX_HEADER, whole.size - start):
        raise DamagedParcel("the file is no parcel")
    header = bytes(whole[start : start + length])
    if blake3.blake3(header).hexdigest() != digest:
        raise DamagedParcel("the header is not the announced one")
    body = whole[_padded(start + length) :]
    return [_item(row, body) for row in json.loads(header)]


def _item(row: dict[str, Any], body: Array) -> Item:
    name, tag, shape = str(row["name"]), str(row["tag"]), tuple(row["shape"])
    values, digest = _part(name, row["values"], body, STORAGE[tag])
    indices = None
    if row["indices"] is not None:
        indices, _ = _part(name, row["indices"], body, INDEX)
        if indices.size != values.size:
            raise DamagedParcel(f"{name} has {indices.size} positions for {values.size} values")
    else:
        values = values.reshape(shape)
    return Item(name, tag, shape, indices, values, digest)


def _part(name: str, part: Part, body: Array, dtype: np.dtype[Any]) -> tuple[Array, str]:
    offset, size, digest = part
    data = body[offset : offset + size]
    if data.size != size or tensor_digest(data) != digest:
        raise DamagedParcel(f"{name} is damaged")
    return data.view(dtype), digest


def _padded(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


def _pad(file: BinaryIO) -> None:
    file.write(bytes(-file.tell() % ALIGN))
