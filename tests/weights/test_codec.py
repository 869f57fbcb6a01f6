"""The codec gives every bit back, and believes nothing that a piece says about itself."""

from __future__ import annotations

import struct
from contextlib import suppress

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tradewind.types import RefusedWeights
from tradewind.weights import hazard, ulps, walk
from tradewind.weights.codec import CODEC, HEADER_BYTES, Method, decode_piece, encode_piece
from tradewind.weights.tensors import STORAGE


def decoded(piece: bytes, old: np.ndarray, tag: str = "BF16") -> bytes:
    """The bits decoded into a fresh array, which must be those decoded onto the old one."""
    out, onto = np.empty_like(old), old.copy()
    decode_piece(memoryview(piece), old, out, tag)
    decode_piece(memoryview(piece), onto, onto, tag)
    assert out.tobytes() == onto.tobytes()
    return out.tobytes()


def encoded(old: np.ndarray, new: np.ndarray, tag: str = "BF16") -> bytes:
    return encode_piece(old, new, tag)


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
    assert decoded(encoded(before, after, tag), before, tag) == after.tobytes()


@pytest.mark.parametrize("tag", ["F16", "F32", "F64"])
def test_nan_payloads_infinities_and_signed_zeros_come_back(tag: str) -> None:
    kind, itemsize = STORAGE[tag], STORAGE[tag].itemsize
    special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0], kind)
    payload = special.copy()
    payload.view(f"u{itemsize}")[:2] ^= 5
    for old, new in ((special, payload), (payload, special)):
        assert decoded(encoded(old, new, tag), old, tag) == new.tobytes()


def every_pair(tag: str, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """All bit patterns of a dtype, each beside another one."""
    patterns = np.arange(2 ** (8 * STORAGE[tag].itemsize), dtype=f"u{STORAGE[tag].itemsize}")
    return patterns.view(STORAGE[tag]), draw.permutation(patterns).view(STORAGE[tag])


@pytest.mark.parametrize("tag", ["BF16", "F16", "I16", "F8_E4M3", "F8_E5M2", "F8_E8M0", "I8", "U8"])
def test_every_bit_pattern_can_become_any_other(tag: str) -> None:
    old, new = every_pair(tag, np.random.default_rng(0))
    payload = hazard.encode(bits(old), bits(new), hazard.LAYOUTS[tag])
    if payload is not None:
        out = bits(old).copy()
        hazard.decode(memoryview(payload), bits(old), out, hazard.LAYOUTS[tag])
        assert np.array_equal(out, bits(new))
    assert decoded(encoded(old, new, tag), old, tag) == new.tobytes()


def bits(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.itemsize}")


def policy_step(size: int, step: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """bf16 bits before and after an update whose fp32 masters moved by about `step`."""
    draw = np.random.default_rng(seed)
    master = draw.normal(0, 0.02, size).astype(np.float32)
    moved = master + draw.normal(0, step, size).astype(np.float32)
    return rounded(master), rounded(moved)


def rounded(values: np.ndarray) -> np.ndarray:
    """fp32 to bf16 bits, to nearest even."""
    wide = values.view(np.uint32)
    return ((wide + 0x7FFF + (wide >> 16 & 1)) >> 16).astype(np.uint16)


def entropy_given_exponents(old: np.ndarray, new: np.ndarray) -> float:
    """Bytes: sum over exponents of the entropies of "changed?" and, if so, "by how many ulps?"."""
    line = lambda x: np.where(x < 2**15, x.astype(np.int64), 2**15 - 1 - x.astype(np.int64))  # noqa: E731
    exponents, steps = old >> 7 & 255, line(new) - line(old)
    total = 0.0
    for e in np.unique(exponents):
        for chosen in (steps[exponents == e] != 0, steps[(exponents == e) & (steps != 0)]):
            _, counts = np.unique(chosen, return_counts=True)
            total -= float((counts * np.log2(counts / counts.sum())).sum()) if counts.size else 0.0
    return total / 8


@pytest.mark.parametrize("step", [2e-7, 1e-6, 5e-6])
def test_an_update_takes_hardly_more_than_its_entropy_given_the_exponents(step: float) -> None:
    old, new = policy_step(2**19, step)
    piece = encoded(old, new)
    assert decoded(piece, old) == new.tobytes()
    assert piece[1] == Method.HAZARD
    assert len(piece) < 1.03 * entropy_given_exponents(old, new) + 40


def test_nothing_changed_takes_a_few_bytes() -> None:
    """A learning rate of zero publishes empty deltas."""
    old, _ = policy_step(2**16, 0.0)
    piece = encoded(old, old.copy())
    assert decoded(piece, old) == old.tobytes()
    assert len(piece) < 16


def test_mapped_and_decoded_tensors_are_not_compiled_for_apart() -> None:
    """A base checkpoint is mapped read-only: its first update stalled for a second compilation."""
    old, new = policy_step(2**12, 1e-6)
    mapped = np.frombuffer(old.tobytes(), np.uint16)
    for before in (old, mapped):
        assert decoded(encoded(before, new), before) == new.tobytes()
    for kernel in (walk.survey, walk.encode, walk.decode, ulps.encode, ulps.decode):
        bf16 = [types for types in kernel.signatures if types[0].dtype.name == "uint16"]
        assert len(bf16) == 1, "one compilation for a dtype"


@pytest.mark.parametrize("changed", [[0], [2**16 - 1], [0, 2**16 - 1], [], list(range(40))])
def test_changes_at_the_ends_of_a_tensor_come_back(changed: list[int]) -> None:
    old, _ = policy_step(2**16, 0.0)
    new = old.copy()
    new[changed] ^= 1
    assert decoded(encoded(old, new), old) == new.tobytes()


def test_a_rare_change_far_behind_many_others_comes_back() -> None:
    """More windows survived than one symbol can name."""
    old = np.full(2**20, 0x3C00, np.uint16)
    new = old.copy()
    new[:5000] ^= 3
    new[-1] ^= 0x8000
    assert decoded(encoded(old, new), old) == new.tobytes()


def test_a_pattern_is_coded_as_a_difference() -> None:
    old = np.random.default_rng(0).integers(0, 2**16, 100_000, np.uint16)
    piece = encoded(old, old ^ 1)
    assert decoded(piece, old) == (old ^ 1).tobytes()
    assert piece[1] == Method.XOR
    assert len(piece) < 100


def test_a_tensor_set_to_a_constant_is_coded_without_the_old_one() -> None:
    old = np.random.default_rng(0).integers(0, 2**16, 10_000, np.uint16)
    piece = encoded(old, np.zeros_like(old))
    assert decoded(piece, old) == bytes(old.nbytes)
    assert piece[1] == Method.DENSE
    assert len(piece) < 100


def test_noise_takes_no_more_than_its_own_bytes_and_a_header() -> None:
    draw = np.random.default_rng(0)
    old, new = draw.integers(0, 256, (2, 10_000), np.uint8)
    piece = encoded(old, new, "U8")
    assert decoded(piece, old, "U8") == new.tobytes()
    assert piece[1] == Method.RAW
    assert len(piece) == new.nbytes + HEADER_BYTES


def some_piece() -> tuple[bytes, np.ndarray]:
    old, new = policy_step(5000, 3e-6)
    piece = encode_piece(old, new, "BF16")
    assert piece[1] == Method.HAZARD
    return piece, old


def zstd_piece() -> tuple[bytes, np.ndarray]:
    old = np.random.default_rng(0).integers(0, 2**16, 5000, np.uint16)
    piece = encode_piece(old, old ^ 1, "BF16")
    assert piece[1] == Method.XOR
    return piece, old


def refused(piece: bytes, old: np.ndarray) -> str:
    with pytest.raises(RefusedWeights) as caught:
        decode_piece(memoryview(piece), old, old.copy(), "BF16")
    return str(caught.value)


def test_a_cut_zstd_piece_is_refused_at_every_length() -> None:
    piece, old = zstd_piece()
    for length in range(len(piece)):
        header = length < HEADER_BYTES
        expected = "shorter than its header" if header else "compressed payload"
        assert expected in refused(piece[:length], old)


def test_a_cut_list_of_changes_is_refused_or_decodes_to_something_else() -> None:
    """Its words that are zero need not be there; the tensor's digest is what tells."""
    piece, old = some_piece()
    whole = decoded(piece, old)
    for length in range(len(piece)):
        out = old.copy()
        try:
            decode_piece(memoryview(piece[:length]), old, out, "BF16")
        except RefusedWeights:
            continue
        assert out.tobytes() != whole


def test_bytes_after_the_payload_are_refused() -> None:
    piece, old = zstd_piece()
    assert "compressed payload" in refused(piece + b"\0", old)
    piece, old = some_piece()
    assert "do not fill it" in refused(piece + b"\0", old)
    assert "steps that do not decode" in refused(piece + bytes(4), old), "a word nobody reads"


def test_more_changes_than_weights_are_refused_before_memory_is_taken() -> None:
    piece, old = some_piece()
    many = bytes((0, 8, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F, 0, 0))
    assert "counts that cannot be" in refused(piece[:2] + many, old)
    assert "does not end" in refused(piece[:2] + b"\xff" * 40, old)


def test_a_piece_for_another_size_is_refused() -> None:
    piece, old = zstd_piece()
    assert "not 9998" in refused(piece, old[:-1])


def test_an_unknown_codec_or_method_is_refused() -> None:
    piece, old = some_piece()
    assert "another codec" in refused(b"\7" + piece[1:], old)
    assert "unknown method" in refused(piece[:1] + b"\7" + piece[2:], old)
    wide = np.zeros(4)
    with pytest.raises(RefusedWeights, match="its dtype has not"):
        decode_piece(memoryview(piece), wide, wide, "F64")


def test_a_payload_that_would_unpack_to_gigabytes_is_refused_before_it_does() -> None:
    piece, old = zstd_piece()
    bomb = zstandard.ZstdCompressor().compress(bytes(64 * 2**20))
    assert "declares 67108864 bytes" in refused(piece[:HEADER_BYTES] + bomb, old)
    # a frame without its size, which a decoder would have to grow into
    stream = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(64 * 2**20))
    assert "declares" in refused(piece[:HEADER_BYTES] + stream, old)
    # a frame whose header lies about its size
    honest = zstandard.ZstdCompressor().compress(bytes(64 * 2**20))
    at = honest.index(struct.pack("<I", 64 * 2**20))
    liar = honest[:at] + struct.pack("<I", old.nbytes) + honest[at + 4 :]
    refused(piece[:HEADER_BYTES] + liar, old)


@settings(max_examples=500, deadline=None)
@given(at=st.integers(0), flip=st.integers(1, 255), seed=st.integers(0, 20))
def test_a_flipped_byte_is_refused_or_changes_bytes_of_the_tensor_only(
    at: int, flip: int, seed: int
) -> None:
    """The codec has no checksum of its own (frames and tensors have); it must not crash or hang."""
    old, new = policy_step(1000, 3e-6, seed)
    piece = bytearray(encode_piece(old, new, "BF16"))
    piece[at % len(piece)] ^= flip
    guarded = np.full(old.size + 64, 0xABCD, np.uint16)
    guarded[32:-32] = old
    with suppress(RefusedWeights):
        decode_piece(memoryview(bytes(piece)), old, guarded[32:-32], "BF16")
    assert (guarded[:32] == 0xABCD).all() and (guarded[-32:] == 0xABCD).all()


@settings(max_examples=300, deadline=None)
@given(noise=st.binary(max_size=300), method=st.sampled_from(list(Method)))
def test_noise_is_refused_or_decodes_to_a_tensor(noise: bytes, method: Method) -> None:
    old, _ = policy_step(400, 0.0)
    out = old.copy()
    try:
        decode_piece(memoryview(bytes((CODEC, method)) + noise), old, out, "BF16")
    except RefusedWeights:
        return
    assert out.shape == old.shape
