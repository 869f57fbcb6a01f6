"""The delta codec: one piece of one tensor, old bits and new bits in, a few bytes out.

A tensor is cut into pieces of `PIECE_BYTES` raw bytes. A piece is coded by the smallest of

    RAW     the new bytes
    DENSE   zstd(planes(new))
    XOR     zstd(planes(old XOR new))

where `planes` puts all first bytes of the items before all second bytes and so on: in a small
update of bf16 the upper byte hardly ever differs, so its plane is a run of zeros. Every path works
on bytes, so every dtype and every NaN payload comes back bit for bit.

    piece = magic "TWDP" | codec u8 | method u8 | item size u8 | 0 | raw size u64 | payload

The receiver knows the raw size and item size from its own tensor. What a piece says about itself is
compared with that before anything is allocated.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NoReturn

import numpy as np
import zstandard

from tradewind.types.errors import RefusedWeights
from tradewind.weights.tensors import Bytes

MAGIC = b"TWDP"
CODEC = 1
HEADER = struct.Struct("<4sBBBxQ")
PIECE_BYTES = 2**20
"""Small enough for its temporaries to stay in the cache, large enough for zstd to work well."""
LEVEL = 1
"""zstd level; 3 was no smaller on real updates."""
DENSE_ABOVE = 1 / 4
"""DENSE is tried when XOR leaves more than this share of the raw size: it never beats a sparse
update, and coding full mantissas is slow."""


class Method(IntEnum):
    """How the payload of a piece is coded."""

    RAW = 0
    DENSE = 1
    XOR = 2


def encode_piece(old: Bytes, new: Bytes, itemsize: int) -> bytes:
    """Codes `new` given `old`; both flat, of equal size, a multiple of `itemsize` bytes."""
    assert old.size == new.size and new.size % itemsize == 0, "pieces are whole items"
    compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=False)
    method, payload = Method.XOR, compressor.compress(_planes(old ^ new, itemsize).data)
    if len(payload) > DENSE_ABOVE * new.size:
        dense = compressor.compress(_planes(new, itemsize).data)
        if len(dense) < len(payload):
            method, payload = Method.DENSE, dense
        if new.size <= len(payload):
            method, payload = Method.RAW, new.tobytes()
    return HEADER.pack(MAGIC, CODEC, method, itemsize, new.size) + payload


def decode_piece(piece: memoryview, old: Bytes, out: Bytes, itemsize: int) -> None:
    """Restores the new bytes into `out`, which has the size of `old` and may be `old` itself.

    Raises RefusedWeights for anything but a well-formed piece of exactly that size; `out` is then
    undefined.
    """
    if len(piece) < HEADER.size:
        _refuse("a piece is shorter than its header", len(piece))
    magic, codec, method, size, raw_size = HEADER.unpack_from(piece)
    if magic != MAGIC:
        _refuse("a piece does not start with the magic", magic)
    if codec != CODEC:
        raise RefusedWeights(
            "a piece was coded by an unknown codec", value=codec, fix="update this pool"
        )
    if (size, raw_size) != (itemsize, out.size):
        _refuse(f"a piece says {raw_size} bytes of {size}, not {out.size} of {itemsize}", None)
    payload = piece[HEADER.size :]
    if method == Method.RAW:
        if len(payload) != out.size:
            _refuse(f"a raw piece holds {len(payload)} bytes, not {out.size}", None)
        out[:] = np.frombuffer(payload, np.uint8)
    elif method == Method.DENSE:
        out[:] = _unplanes(_decompress(payload, out.size), itemsize)
    elif method == Method.XOR:
        np.bitwise_xor(old, _unplanes(_decompress(payload, out.size), itemsize), out=out)
    else:
        _refuse("a piece has an unknown method", method)


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
