"""The delta codec: one piece of one tensor, old bits and new bits in, a few bytes out.

A tensor is cut into pieces of `PIECE_BYTES` raw bytes. A piece is coded by the smallest of

    RAW      the new bytes
    DENSE    zstd(planes(new))
    XOR      zstd(planes(old XOR new))
    HAZARD   which items changed and by how many ulps, given the old exponents (see `hazard`)

where `planes` puts all first bytes of the items before all second bytes and so on. HAZARD is what
updates of a policy are coded by; the others are for what is no update (a tensor that was replaced,
an update with a pattern in it) and for items of 8 bytes. Every path works on bits, so every dtype
and every NaN payload comes back bit for bit.

    piece = codec u8 | method u8 | payload

The receiver knows size and dtype from its own tensor; nothing that a piece says about itself is
used to allocate.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NoReturn

import numpy as np
import zstandard

from tradewind.types.errors import RefusedWeights
from tradewind.weights import hazard
from tradewind.weights.tensors import STORAGE, Array, Bytes, raw

CODEC = 4
HEADER_BYTES = 2
PIECE_BYTES = 2**24
"""Raw: large enough that what a piece learns of its tensor costs nothing, small enough that a
large embedding is coded by several threads."""
LEVEL = 1
"""zstd level; 3 was no smaller on real updates."""
SAMPLE_BYTES = 2**16
"""XOR is tried on so many bytes from the middle first, and dropped if they promise no gain."""
DENSE_ABOVE = 1 / 4
"""DENSE is tried when the smallest so far leaves more than this share of the raw size: it never
beats a sparse update, and coding full mantissas is slow."""


class Method(IntEnum):
    """How the payload of a piece is coded."""

    RAW = 0
    DENSE = 1
    XOR = 2
    HAZARD = 3


def encode_piece(old: Array, new: Array, tag: str) -> bytes:
    """Codes `new` given `old`, both flat, of one size and of the storage type of dtype `tag`."""
    assert old.size == new.size and old.dtype == new.dtype == STORAGE[tag], "one shape, one dtype"
    method, payload, size = Method.RAW, b"", new.nbytes
    layout = hazard.LAYOUTS.get(tag)
    if layout is not None:
        coded = hazard.encode(_bits(old), _bits(new), layout)
        if coded is not None:
            method, payload, size = Method.HAZARD, coded, len(coded)
    if _xor_promises(raw(old), raw(new), new.itemsize, size):
        coded = _compress(_planes(raw(old) ^ raw(new), new.itemsize))
        if len(coded) < size:
            method, payload, size = Method.XOR, coded, len(coded)
    if size > DENSE_ABOVE * new.nbytes:
        coded = _compress(_planes(raw(new), new.itemsize))
        if len(coded) < size:
            method, payload = Method.DENSE, coded
    if method == Method.RAW:
        payload = new.tobytes()
    return bytes((CODEC, method)) + payload


def decode_piece(piece: memoryview, old: Array, out: Array, tag: str) -> None:
    """Restores the new items into `out`, which has the size of `old` and may be `old` itself.

    Raises RefusedWeights for anything but a well-formed piece of exactly that size; `out` is then
    undefined.
    """
    if len(piece) < HEADER_BYTES:
        _refuse("a piece is shorter than its header", len(piece))
    codec, method, payload = piece[0], piece[1], piece[HEADER_BYTES:]
    if codec != CODEC:
        raise RefusedWeights(
            f"a piece was coded by another codec than {CODEC}", value=codec, fix="update this pool"
        )
    if method == Method.HAZARD:
        if not np.may_share_memory(out, old):
            out[:] = old
        _change(payload, old, out, tag)
    elif method == Method.RAW:
        if len(payload) != out.nbytes:
            _refuse(f"a raw piece holds {len(payload)} bytes, not {out.nbytes}", None)
        raw(out)[:] = np.frombuffer(payload, np.uint8)
    elif method == Method.DENSE:
        raw(out)[:] = _unplanes(_decompress(payload, out.nbytes), out.itemsize)
    elif method == Method.XOR:
        difference = _unplanes(_decompress(payload, out.nbytes), out.itemsize)
        np.bitwise_xor(raw(old), difference, out=raw(out))
    else:
        _refuse("a piece has an unknown method", method)


def _change(payload: memoryview, old: Array, out: Array, tag: str) -> None:
    layout = hazard.LAYOUTS.get(tag)
    if layout is None:
        _refuse("a piece has a method that its dtype has not", tag)
    try:
        hazard.decode(payload, _bits(old), _bits(out), layout)
    except hazard.DamagedError as error:
        _refuse("a list of changes is damaged", str(error))


def _bits(items: Array) -> Array:
    """The items as unsigned integers, a view."""
    return items.view(f"u{items.itemsize}")


def _xor_promises(old: Bytes, new: Bytes, itemsize: int, size: int) -> bool:
    """Whether a sample from the middle says that XOR may need fewer than `size` bytes."""
    if old.size <= SAMPLE_BYTES:
        return True
    start = (old.size - SAMPLE_BYTES) // 2 // 8 * 8
    cut = slice(start, start + SAMPLE_BYTES)
    sample = _compress(_planes(old[cut] ^ new[cut], itemsize))
    return len(sample) * old.size < size * SAMPLE_BYTES


def _compress(data: Bytes) -> bytes:
    return zstandard.ZstdCompressor(level=LEVEL, write_checksum=False).compress(data.data)


def _decompress(payload: memoryview, size: int) -> Bytes:
    try:
        declared = zstandard.frame_content_size(payload)
        if declared != size:
            _refuse(f"a compressed payload declares {declared} bytes, not {size}", None)
        # the declared size bounds the output buffer, and a one-shot decoder needs no window
        plain = zstandard.ZstdDecompressor().decompress(payload, allow_extra_data=False)
    except zstandard.ZstdError as error:
        _refuse("a compressed payload is damaged", str(error))
    if len(plain) != size:
        _refuse(f"a compressed payload held {len(plain)} bytes, not {size}", None)
    return np.frombuffer(plain, np.uint8)


def _planes(data: Bytes, itemsize: int) -> Bytes:
    """Byte planes of `data`: byte k of every item, for k = 0, 1, ..."""
    if itemsize == 1:
        return data
    return np.ascontiguousarray(data.reshape(-1, itemsize).T).reshape(-1)


def _unplanes(planes: Bytes, itemsize: int) -> Bytes:
    """The inverse of `_planes`."""
    if itemsize == 1:
        return planes
    items = np.empty_like(planes)
    count = planes.size // itemsize
    for k in range(itemsize):
        items[k::itemsize] = planes[k * count : (k + 1) * count]
    return items


def _refuse(what: str, value: object) -> NoReturn:
    raise RefusedWeights(what, value=value, fix="publish the version again, the upload is damaged")
