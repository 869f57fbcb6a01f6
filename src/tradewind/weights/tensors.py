"""A tensor set: named arrays with dtype tags, torch-free.

Names and shapes are those of the checkpoint (Hugging Face coordinates). numpy has no bf16 and no
fp8, so those are held as their bits: BF16 as `uint16`, F8_* as `uint8`. Nothing here does
arithmetic on values; a tensor set is bytes with a name, a dtype and a shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

STORAGE: dict[str, np.dtype[Any]] = {
    tag: np.dtype(kind)
    for tag, kind in {
        "BF16": "<u2",
        "F16": "<f2",
        "F32": "<f4",
        "F64": "<f8",
        "F8_E4M3": "u1",
        "F8_E5M2": "u1",
        "F8_E8M0": "u1",
        "BOOL": "?",
        "U8": "u1",
        "I8": "i1",
        "U16": "<u2",
        "I16": "<i2",
        "U32": "<u4",
        "I32": "<i4",
        "U64": "<u8",
        "I64": "<i8",
    }.items()
}
"""Dtype tag of the safetensors format -> numpy dtype that holds its bits."""

DEFAULT_TAG: dict[np.dtype[Any], str] = {
    STORAGE[tag]: tag
    for tag in (
        "BF16", "F16", "F32", "F64", "BOOL", "U8", "I8", "I16", "U32", "I32", "U64", "I64"
    )
}  # fmt: skip
"""What an untagged array is taken for. `uint16` is BF16: weights are never true U16."""


class TensorSet(Mapping[str, Array]):
    """Immutable mapping of checkpoint names to C-contiguous little-endian arrays, with dtype tags.

    `TensorSet({"w": bits})` takes the tags from `DEFAULT_TAG`; other tags are given in `tags`.
    Arrays are referenced, not copied. Raises ValueError for a tag that does not fit its array.

    Example: `TensorSet({"lm.weight": np.zeros((2, 3), np.uint16)}).tag("lm.weight") == "BF16"`.
    """

    def __init__(self, arrays: Mapping[str, Array], tags: Mapping[str, str] | None = None) -> None:
        given = tags or {}
        self._arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
        self._tags = {
            name: given.get(name) or _tag_of(name, array) for name, array in self._arrays.items()
        }
        for name, array in self._arrays.items():
            if STORAGE.get(self._tags[name]) != array.dtype:
                raise ValueError(f"{name}: {self._tags[name]} does not fit {array.dtype}")

    @classmethod
    def of(cls, tensors: Mapping[str, Array]) -> TensorSet:
        """`tensors` itself if it is a tensor set, else one with default tags."""
        return tensors if isinstance(tensors, TensorSet) else cls(tensors)

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def tag(self, name: str) -> str:
        """The dtype tag of tensor `name`."""
        return self._tags[name]

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors, dense."""
        return sum(array.nbytes for array in self._arrays.values())

    def with_changed(self, changed: Mapping[str, Array]) -> TensorSet:
        """A set that differs in `changed` only; the other arrays are shared. Tags stay."""
        unknown = changed.keys() - self._arrays.keys()
        assert not unknown, f"tensors that the set does not have: {sorted(unknown)}"
        return TensorSet({**self._arrays, **changed}, self._tags)


def raw(array: Array) -> Bytes:
    """The bytes of a C-contiguous array as a flat view, without a copy."""
    return array.reshape(-1).view(np.uint8)


def _tag_of(name: str, array: Array) -> str:
    tag = DEFAULT_TAG.get(array.dtype)
    if tag is None:
        raise ValueError(f"{name}: no dtype tag stands for {array.dtype}")
    return tag
