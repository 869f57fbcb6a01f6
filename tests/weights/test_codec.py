"""The codec gives every bit back, and believes nothing that a piece says about itself."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tradewind.types import RefusedWeights
from tradewind.weights.codec import HEADER, Method, decode_piece, encode_piece
from tradewind.weights.tensors import STORAGE, raw


def decoded(piece: bytes, old: np.ndarray) -> bytes:
    """The bits decoded into a fresh array, which must be those decoded onto the old one."""
    out, onto = np.empty_like(old), old.copy()
    decode_piece(memoryview(piece), raw(old), raw(out), old.itemsize)
    decode_piece(memoryview(piece), raw(onto), raw(onto), old.itemsize)
    assert out.tobytes() == onto.tobytes()
    return out.tobytes()


def encoded(old: np.ndarray, new: np.ndarray) -> bytes:
    return encode_piece(raw(old), raw(new), new.itemsize)


@settings(max_examples=200, deadline=None)
@given(
    tag=st.sampled_from(sorted(STORAGE)),
    data=st.data(),
    count=st.integers(1, 300),
    share=st.sampled_from([0.0, 0.01, 0.3, 1.0]),
)
def test_every_dtype_comes_back_bit_for_bit(
    tag: str, data: st.DataObject, count: int, share: float
) -> None:
    size = count * STORAGE[tag].itemsize
    seed = data.draw(st.integers(0, 2**32 - 1))
    draw = np.random.default_rng(seed)
    old = draw.integers(0, 2 if tag == "BOOL" else 256, size, np.uint8)
    new = old.copy()
    hit = draw.random(size) < share
    new[hit] = draw.integers(0, 2 if tag == "BOOL" else 256, int(hit.sum()), np.uint8)
    before, after = old.view(STORAGE[tag]), new.view(STORAGE[tag])
    assert decoded(encoded(before, after), before) == after.tobytes()


@pytest.mark.parametrize("itemsize", [2, 4, 8])
def test_nan_payloads_infinities_and_signed_zeros_come_back(itemsize: int) -> None:
    kind = np.dtype(f"f{itemsize}")
    special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0], kind)
    payload = special.copy()
    payload.view(f"u{itemsize}")[:2] ^= 5
    for old, new in ((special, payload), (payload, special)):
        assert decoded(encoded(old, new), old) == new.tobytes()


def test_a_sparse_update_is_coded_as_a_difference() -> None:
    draw = np.random.default_rng(0)
    old = draw.integers(0, 2**16, 100_000, np.uint16)
    new = old.copy()
    new[::1000] ^= 1
    piece = encoded(old, new)
    assert decoded(piece, old) == new.tobytes()
    assert HEADER.unpack_from(piece)[2] == Method.XOR
    assert len(piece) < new.nbytes / 50


def test_a_tensor_set_to_a_constant_is_coded_without_the_old_one() -> None:
    old = np.random.default_rng(0).integers(0, 2**16, 10_000, np.uint16)
    piece = encoded(old, np.zeros_like(old))
    assert decoded(piece, old) == bytes(old.nbytes)
    assert HEADER.unpack_from(piece)[2] == Method.DENSE
    assert len(piece) < 100


def test_noise_takes_no_more_than_its_own_bytes_and_a_header() -> None:
    draw = np.random.default_rng(0)
    old, new = draw.integers(0, 256, (2, 10_000), np.uint8)
    piece = encoded(old, new)
    assert decoded(piece, old) == new.tobytes()
    assert HEADER.unpack_from(piece)[2] == Method.RAW
    assert len(piece) == new.nbytes + HEADER.size


def some_piece() -> tuple[bytes, np.ndarray]:
    old = np.arange(5000, dtype=np.uint16)
    new = old.copy()
    new[7] ^= 1
    return encode_piece(raw(old), raw(new), 2), old


def refused(piece: bytes, old: np.ndarray) -> str:
    with pytest.raises(RefusedWeights) as caught:
        decode_piece(memoryview(piece), raw(old), raw(old.copy()), 2)
    return str(caught.value)


def test_a_cut_piece_is_refused_at_every_length() -> None:
    piece, old = some_piece()
    for length in range(len(piece)):
        header = length < HEADER.size
        expected = "shorter than its header" if header else "compressed payload"
        assert expected in refused(piece[:length], old)


def test_bytes_after_the_payload_are_refused() -> None:
    piece, old = some_piece()
    assert "compressed payload" in refused(piece + b"\0", old)


def test_a_piece_of_another_size_or_dtype_is_refused() -> None:
    piece, old = some_piece()
    assert "not 9998 of 2" in refused(piece, old[:-1])
    assert "10000 bytes of 4" in refused(piece[:6] + b"\4" + piece[7:], old)


def test_an_unknown_codec_or_method_is_refused() -> None:
    piece, old = some_piece()
    assert "unknown codec" in refused(piece[:4] + b"\2" + piece[5:], old)
    assert "unknown method" in refused(piece[:5] + b"\7" + piece[6:], old)
    assert "magic" in refused(b"PK" + piece[2:], old)


def test_a_payload_that_would_unpack_to_gigabytes_is_refused_before_it_does() -> None:
    piece, old = some_piece()
    bomb = zstandard.ZstdCompressor().compress(bytes(64 * 2**20))
    assert "declares 67108864 bytes" in refused(piece[: HEADER.size] + bomb, old)
    # a frame without its size, which a decoder would have to grow into
    stream = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(64 * 2**20))
    assert "declares" in refused(piece[: HEADER.size] + stream, old)
    # a frame whose header lies about its size
    honest = zstandard.ZstdCompressor().compress(bytes(64 * 2**20))
    at = honest.index(struct.pack("<I", 64 * 2**20))
    liar = honest[:at] + struct.pack("<I", old.nbytes) + honest[at + 4 :]
    refused(piece[: HEADER.size] + liar, old)


@settings(max_examples=300, deadline=None)
@given(at=st.integers(0), flip=st.integers(1, 255))
def test_a_flipped_byte_is_refused_or_changes_bytes_of_the_tensor_only(at: int, flip: int) -> None:
    """The codec has no checksum of its own (frames and tensors have); it must not crash."""
    piece, old = some_piece()
    broken = bytearray(piece)
    broken[at % len(piece)] ^= flip
    out = old.copy()
    try:
        decode_piece(memoryview(bytes(broken)), raw(old), raw(out), 2)
    except RefusedWeights:
        return
    assert out.shape == old.shape
