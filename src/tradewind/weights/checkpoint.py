"""Checkpoint folders of safetensors files, read by mmap and written without torch.

A file is `u64 header length, JSON header, data` (safetensors format): the header maps a name to
`{"dtype", "shape", "data_offsets": [begin, end]}`, offsets counted from the end of the header.
A folder holds either `model.safetensors` or shards and `model.safetensors.index.json`.
Nothing in a file is believed: every offset is checked against the file before a view is made.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from tradewind.types.errors import UserError
from tradewind.weights.tensors import STORAGE, Array, TensorSet, raw

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
MAX_HEADER = 100_000_000
"""Bytes; the limit of the reference implementation."""


def read_folder(folder: Path) -> TensorSet:
    """All tensors of a checkpoint folder, as read-only views of the mapped files.

    Tied tensors that the files leave out stay out. Raises UserError for a folder, file or header
    that is missing or damaged.
    """
    if not folder.is_dir():
        raise UserError(
            "the model folder does not exist",
            value=str(folder),
            fix="give a folder that holds config.json and model.safetensors",
        )
    if (folder / INDEX).exists():
        return _read_shards(folder)
    return read_file(folder / SINGLE)


def read_file(path: Path) -> TensorSet:
    """All tensors of one safetensors file, as read-only views of the mapped file.

    Raises UserError if it is missing, truncated or not what its header says.
    """
    if not path.is_file():
        raise UserError(
            "the weights file does not exist",
            value=str(path),
            fix=f"the folder needs {SINGLE} or {INDEX} with its shards",
        )
    size = path.stat().st_size
    if size < 8:
        _damaged(path, "it is shorter than a header")
    data = np.memmap(path, dtype=np.uint8, mode="r")
    length = int(data[:8].view("<u8")[0])
    if length > min(MAX_HEADER, size - 8):
        _damaged(path, f"its header claims {length} bytes in a file of {size}")
    header = _header(path, bytes(data[8 : 8 + length]))
    body = data[8 + length :]
    arrays: dict[str, Array] = {}
    tags: dict[str, str] = {}
    end = 0
    for name, entry in sorted(header.items(), key=lambda item: _place(path, *item)):
        arrays[name], tags[name], end = _view(path, name, entry, body, end)
    if end != len(body):
        _damaged(path, f"its tensors end at byte {end} of {len(body)}")
    return TensorSet(dict(sorted(arrays.items())), tags)


def write_file(path: Path, tensors: TensorSet, metadata: dict[str, str] | None = None) -> None:
    """Writes one safetensors file; it appears under its name only when it is complete."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt", **(metadata or {})}}
    offset = 0
    # widest items first, so that every tensor is aligned to its own item size
    order = sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))
    for name in order:
        end = offset + tensors[name].nbytes
        header[name] = {
            "dtype": tensors.tag(name),
            "shape": list(tensors[name].shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for name in order:
            file.write(raw(tensors[name]).data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _read_shards(folder: Path) -> TensorSet:
    index = folder / INDEX
    try:
        weight_map = json.loads(index.read_bytes())["weight_map"]
        files = {name: str(file) for name, file in weight_map.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        _damaged(index, "it has no weight_map")
    arrays: dict[str, Array] = {}
    tags: dict[str, str] = {}
    for file in sorted(set(files.values())):
        if Path(file).name != file:
            _damaged(index, f"it names a file outside of the folder, {file!r}")
        shard = read_file(folder / file)
        for name in shard:
            if files.get(name) != file:
                _damaged(folder / file, f"it holds {name!r}, which the index does not place there")
            arrays[name], tags[name] = shard[name], shard.tag(name)
    missing = sorted(files.keys() - arrays.keys())
    if missing:
        _damaged(index, f"{len(missing)} tensors are in no shard, first {missing[0]!r}")
    return TensorSet(dict(sorted(arrays.items())), tags)


def _header(path: Path, text: bytes) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a key stands twice")
        return found

    try:
        header = json.loads(text, object_pairs_hook=unique)
    except ValueError as error:
        _damaged(path, f"its header is not JSON ({error})")
    if not isinstance(header, dict):
        _damaged(path, "its header is not a JSON object")
    header.pop("__metadata__", None)
    return header


def _place(path: Path, name: str, entry: Any) -> tuple[int, int]:
    try:
        begin, end = entry["data_offsets"]
        shape = entry["shape"]
        whole = [begin, end, *shape]
        if entry["dtype"] in STORAGE and all(type(n) is int and n >= 0 for n in whole):
            return int(begin), int(end)
    except (TypeError, KeyError, ValueError):
        pass
    _damaged(path, f"its header describes {name!r} as {entry!r}")


def _view(
    path: Path, name: str, entry: dict[str, Any], body: Array, expected: int
) -> tuple[Array, str, int]:
    begin, end = entry["data_offsets"]
    tag, shape = entry["dtype"], tuple(entry["shape"])
    size = math.prod(shape) * STORAGE[tag].itemsize
    if begin != expected or end > len(body) or end - begin != size:
        _damaged(path, f"{name!r} claims bytes {begin} to {end} for {tag} {list(shape)}")
    return body[begin:end].view(STORAGE[tag]).reshape(shape), tag, end


def _damaged(path: Path, what: str) -> NoReturn:
    raise UserError(
        f"the weights file cannot be read, {what}",
        value=str(path),
        fix="copy or download the checkpoint again",
    )
