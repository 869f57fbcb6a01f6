"""Digests of tensors, and the state id: a Merkle root over all of them (promise W1).

    leaf   = BLAKE3(0x00, canonical JSON of [name, dtype tag, shape, BLAKE3 of the bytes])
    node   = BLAKE3(0x01, left, right)          an odd last node moves up unchanged
    state  = "b3:" + hex(root)                  leaves sorted by name

The tree form (RFC 6962, section 2.1, with its domain bytes) lets a holder of some tensors prove
them without the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import blake3

from tradewind.weights.tensors import Array, TensorSet, raw

PREFIX = "b3:"


@dataclass(frozen=True, slots=True)
class Leaf:
    """What a tensor contributes to the state id, apart from its name."""

    dtype: str
    shape: tuple[int, ...]
    digest: str
    """BLAKE3 of the bytes, hex."""


def digest_bytes(data: bytes) -> str:
    """BLAKE3 of `data`, 64 hex digits."""
    return blake3.blake3(data).hexdigest()


def tensor_digest(array: Array) -> str:
    """BLAKE3 of a tensor's little-endian, C-order bytes, 64 hex digits."""
    return blake3.blake3(raw(array).data).hexdigest()


def leaves_of(
    tensors: Mapping[str, Array], names: Iterable[str] | None = None, *, threads: int = 1
) -> dict[str, Leaf]:
    """Leaves of the tensors in `names` (default all), hashed on `threads` threads."""
    whole = TensorSet.of(tensors)
    chosen = sorted(whole if names is None else names)
    with ThreadPoolExecutor(threads) as pool:
        digests = list(pool.map(lambda name: tensor_digest(whole[name]), chosen))
    return {
        name: Leaf(whole.tag(name), whole[name].shape, digest)
        for name, digest in zip(chosen, digests, strict=True)
    }


def root(leaves: Mapping[str, Leaf]) -> str:
    """The state id of a complete set of leaves."""
    level = [_leaf_hash(name, leaves[name]) for name in sorted(leaves)]
    if not level:
        return PREFIX + blake3.blake3(b"\x00").hexdigest()
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        above = [blake3.blake3(b"\x01" + left + right).digest() for left, right in pairs]
        level = above + level[len(above) * 2 :]
    return PREFIX + level[0].hex()


def state_id(tensors: Mapping[str, Array], *, threads: int = 1) -> str:
    """The state id of `tensors`: `"b3:"` and 64 hex digits."""
    return root(leaves_of(tensors, threads=threads))


def _leaf_hash(name: str, leaf: Leaf) -> bytes:
    row = [name, leaf.dtype, list(leaf.shape), leaf.digest]
    return blake3.blake3(b"\x00" + json.dumps(row, separators=(",", ":")).encode()).digest()
