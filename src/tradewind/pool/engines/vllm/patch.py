"""What has to be written into a parcel so that a served state becomes another one.

sparse   flat positions (int32) whose bits differ, and their new values
dense    every tensor, whole
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum

import numpy as np

from tradewind.pool.engines.vllm.parcel import INDEX, Item
from tradewind.weights.tensors import Array, TensorSet

BITS = {2: np.uint16, 4: np.uint32, 8: np.uint64}
NUMBER_BITS = {"BF16": (0x7FFF, 0x7F80), "F16": (0x7FFF, 0x7C00), "F32": (0x7FFFFFFF, 0x7F800000)}
"""Of each dtype: the mask of everything but the sign, and the bits of infinity; above is NaN."""


class Way(StrEnum):
    """How vLLM takes new weights."""

    SPARSE = "sparse"
    DENSE = "dense"


def dense(tensors: TensorSet) -> Iterator[Item]:
    """Every tensor of a state."""
    for name, array in tensors.items():
        yield Item(name, tensors.tag(name), array.shape, None, array)


def sparse(old: TensorSet, new: Mapping[str, Array]) -> list[Item] | None:
    """Positions at which `new` differs from `old`; None if they cannot be said or are no gain.

    vLLM marks positions that stay with NaN, so a new NaN cannot be said; nor can a position beyond
    int32. Bits are compared, not numbers: 0 and -0 differ.
    """
    items: list[Item] = []
    patch_bytes = 0
    for name, array in new.items():
        bits = array.reshape(-1).view(BITS[array.itemsize])
        if bits.size > np.iinfo(INDEX).max:
            return None
        where = np.flatnonzero(bits != old[name].reshape(-1).view(bits.dtype))
        if not where.size:
            continue
        values = bits[where]
        if _has_nan(values, old.tag(name)):
            return None
        patch_bytes += where.size * (INDEX.itemsize + array.itemsize)
        item = Item(name, old.tag(name), array.shape, where.astype(INDEX), values.view(array.dtype))
        items.append(item)
    return items if patch_bytes <= old.nbytes else None


def unchanged(tensors: TensorSet, each: int = 4) -> list[Item]:
    """A patch that changes nothing: of each tensor `each` positions with the values they have."""
    items = []
    for name, array in tensors.items():
        flat = array.reshape(-1)
        where = np.unique(np.linspace(0, flat.size - 1, min(each, flat.size)).astype(np.int64))
        values = flat[where]
        tag = tensors.tag(name)
        if where.size and where[-1] <= np.iinfo(INDEX).max and not _has_nan(_bits(values), tag):
            items.append(Item(name, tag, array.shape, where.astype(INDEX), values))
    return items


def _bits(values: Array) -> Array:
    return values.view(BITS[values.itemsize])


def _has_nan(bits: Array, tag: str) -> bool:
    mask, infinity = NUMBER_BITS[tag]
    return bool(((bits & mask) > infinity).any())
