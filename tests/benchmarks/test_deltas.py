"""What `benchmarks/codec.py` compares with is fair: formats lose nothing, bounds are entropies."""

from __future__ import annotations

import sys
from math import log2
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from deltas.bounds import exponent_bytes, line, memoryless_bytes
from deltas.delta import Delta, recorded
from deltas.formats import FORMATS, Format
from deltas.ours import shipped, speeds

from tradewind.weights.tensors import TensorSet

SHAPES = {"matrix": (300, 70), "scalar": (), "tall": (70_000, 2), "vector": (80_000,)}
"""The vector and the tall matrix are long enough for gaps of more than 8 and 16 bits."""


def delta(share: float, seed: int) -> Delta:
    """Random bits, of which `share` change, some by one ulp and some by anything."""
    draw = np.random.default_rng(seed)
    old = {name: draw.integers(0, 2**16, shape, np.uint16) for name, shape in SHAPES.items()}
    new = {}
    for name, before in old.items():
        hit = draw.random(before.shape) < share
        step = np.where(draw.random(before.shape) < 0.9, 1, draw.integers(0, 2**16, before.shape))
        new[name] = np.where(hit, before + step.astype(np.uint16), before).astype(np.uint16)
    return Delta("drawn", TensorSet(old), TensorSet(new))


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
@settings(max_examples=12, deadline=None)
@given(share=st.sampled_from([0.0, 1e-5, 1e-3, 0.02, 0.5, 1.0]), seed=st.integers(0, 2**32 - 1))
def test_a_published_format_gives_every_bit_back(form: Format, share: float, seed: int) -> None:
    change = delta(share, seed)
    back = form.decode(form.encode(change.old, change.new), change.old)
    assert back.keys() == change.new.keys()
    for name, after in change.new.items():
        assert back[name].shape == after.shape
        assert np.array_equal(back[name], after), name


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_changes_at_the_ends_and_far_apart_come_back(form: Format) -> None:
    old = TensorSet({"tall": np.zeros((70_000, 2), np.uint16), "wide": np.zeros(70_001, np.uint16)})
    tall, wide = old["tall"].copy(), old["wide"].copy()
    tall[[0, 0, 300, -1], [0, 1, 1, 1]] = 7
    wide[[0, 1, -1]] = 0xFFFF
    new = TensorSet({"tall": tall, "wide": wide})
    back = form.decode(form.encode(old, new), old)
    assert np.array_equal(back["tall"], tall) and np.array_equal(back["wide"], wide)


def test_the_bounds_are_the_entropies_of_a_case_done_by_hand() -> None:
    """8 weights of each of two exponents; 2 and 4 of them change, by one ulp up or down."""
    old = np.repeat(np.array([0x3F80, 0x4000], np.uint16), 8)
    new = old.copy()
    new[[0, 8, 9]] += 1
    new[[1, 10, 11]] += 3
    change = Delta("by hand", TensorSet({"w": old}), TensorSet({"w": new}))
    entropy = lambda p: -p * log2(p) - (1 - p) * log2(1 - p)  # noqa: E731
    assert memoryless_bytes(change) == pytest.approx((16 * entropy(6 / 16) + 6) / 8)
    given_exponents = 8 * entropy(2 / 8) + 8 * entropy(4 / 8) + 6
    assert exponent_bytes(change) == pytest.approx(given_exponents / 8)


def test_one_ulp_is_one_place_on_the_line() -> None:
    up = np.array([0x0000, 0x0001, 0x3F80, 0x7F7F, 0x7F80], np.uint16)
    assert (np.diff(line(np.sort(up))) > 0).all()
    assert line(np.array([0x8001], np.uint16)) < line(np.array([0x8000], np.uint16)) < 0


def test_ours_is_counted_in_the_bucket_and_timed(tmp_path: Path) -> None:
    delta(0.01, 1).write(tmp_path)
    (folder,) = recorded(tmp_path)
    change = Delta.read(folder)
    assert change.nbytes == 2 * change.weights()
    size = shipped(change)
    assert 0 < size.manifest < size.frames < change.nbytes
    assert all(s.cpu > 0 and s.wall > 0 for s in speeds(change, rounds=1).values())
