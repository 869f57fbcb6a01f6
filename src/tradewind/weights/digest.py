"""Digests of tensors, and the state id: a Merkle root over all of them (promise W1).

    block  = BLAKE3 of 64 KiB of a tensor's bytes; the last one is what is left
    tensor = BLAKE3(0x02, block, block, ...)
    leaf   = BLAKE3(0x00, canonical JSON of [name, dtype tag, shape, hex of the tensor's])
    node   = BLAKE3(0x01, left, right)          an odd last node moves up unchanged
    state  = "b3:" + hex(root)                  leaves sorted by name

Blocks begin at multiples of their size whoever holds the bytes, so ranks that hold some rows each
hash what they hold, and exchange digests and the ends of their rows: at most a block at each side
(`Hashed`, `joined`). The tree form above the leaves (RFC 6962, section 2.1, with its domain bytes)
lets a holder of some tensors prove them without the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import blake3
from pydantic import ConfigDict

from tradewind.types.record import Record
from tradewind.weights.tensors import Array, Bytes, TensorSet, raw

PREFIX = "b3:"
BLOCK = 2**16
"""Bytes."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """What a tensor contributes to the state id, apart from its name."""

    dtype: str
    shape: tuple[int, ...]
    digest: str
    """Of the tensor, hex."""


class Hashed(Record):
    """What a run of a tensor's bytes says about the tensor's digest.

    `head` and `tail` are the bytes at its ends that share a block with other runs, or all of them.
    """

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    begin: int
    """Its first byte, counted in the tensor."""
    end: int
    """The byte after its last one."""
    head: bytes
    blocks: bytes
    """Digests of the whole blocks in it, 32 bytes each."""
    tail: bytes


def digest_bytes(data: bytes) -> str:
    """BLAKE3 of `data`, 64 hex digits."""
    return blake3.blake3(data).hexdigest()


def tensor_digest(array: Array) -> str:
    """The digest of a tensor's little-endian, C-order bytes, 64 hex digits."""
    return joined([hashed(raw(array), 0, array.nbytes)], array.nbytes)


def hashed(run: Bytes, begin: int, total: int) -> Hashed:
    """Hashes bytes [begin, begin + len(run)) of a tensor of `total` bytes."""
    end = begin + run.size
    first = -(-begin // BLOCK) * BLOCK
    last = end if end == total else end // BLOCK * BLOCK
    if first >= last:  # no block is whole in it
        return Hashed(begin=begin, end=end, head=run.tobytes(), blocks=b"", tail=b"")
    cuts = (run[i - begin : min(i + BLOCK, last) - begin] for i in range(first, last, BLOCK))
    return Hashed(
        begin=begin,
        end=end,
        head=run[: first - begin].tobytes(),
        blocks=b"".join(blake3.blake3(cut.data).digest() for cut in cuts),
        tail=run[last - begin :].tobytes(),
    )


def joined(runs: Iterable[Hashed], total: int) -> str:
    """The digest of the tensor that `runs`, in order, make up without a gap; 64 hex digits."""
    digest, shared, at = blake3.blake3(b"\x02"), bytearray(), 0

    def close(least: int) -> None:
        while len(shared) >= least:
            digest.update(blake3.blake3(bytes(shared[:BLOCK])).digest())
            del shared[:BLOCK]

    for run in runs:
        assert run.begin == at, f"bytes {at} to {run.begin} are missing"
        at = run.end
        shared += run.head
        close(BLOCK)
        assert not (shared and run.blocks), "whole blocks begin where a block begins"
        digest.update(run.blocks)
        shared += run.tail
    close(1)
    assert at == total, f"the runs end at {at} of {total} bytes"
    return digest.hexdigest()


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
