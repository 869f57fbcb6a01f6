"""Which positions a patch names, against a loop over all of them."""

from __future__ import annotations

import numpy as np
import pytest

from tradewind.pool.engines.vllm.patch import dense, sparse, unchanged
from tradewind.weights.tensors import Array, TensorSet

NAN, MINUS_ZERO = 0x7FC0, 0x8000


def slow(old: Array, new: Array) -> list[tuple[int, bytes]]:
    """Positions and bytes that differ."""
    pairs = zip(old.reshape(-1), new.reshape(-1), strict=True)
    return [(i, b.tobytes()) for i, (a, b) in enumerate(pairs) if a.tobytes() != b.tobytes()]


@pytest.mark.parametrize("dtype", [np.uint16, np.float16, np.float32])
def test_a_patch_names_exactly_what_differs(dtype: type) -> None:
    draw = np.random.default_rng(0)
    old = draw.integers(0, 100, (30, 7)).astype(dtype)
    new = old.copy()
    new.reshape(-1)[draw.choice(new.size, 20, replace=False)] += dtype(1)
    same = draw.integers(0, 9, 5).astype(dtype)
    items = sparse(TensorSet({"w": old, "v": same}), {"w": new, "v": same.copy()})
    assert items is not None
    (item,) = items
    assert (item.name, item.shape) == ("w", (30, 7))
    assert item.indices is not None and item.indices.dtype == np.int32
    found = [(int(i), v.tobytes()) for i, v in zip(item.indices, item.values, strict=True)]
    assert found == slow(old, new)


def test_zero_and_minus_zero_are_not_the_same() -> None:
    old, new = np.zeros(1000, np.uint16), np.zeros(1000, np.uint16)
    new[3] = MINUS_ZERO
    items = sparse(TensorSet({"w": old}), {"w": new})
    assert items is not None and items[0].values.tolist() == [MINUS_ZERO]


@pytest.mark.parametrize(
    ("dtype", "value"),
    [(np.uint16, NAN), (np.float32, np.float32("nan")), (np.float16, np.float16("nan"))],
)
def test_a_new_nan_cannot_be_said(dtype: type, value: float) -> None:
    old = np.zeros(1000, dtype)
    new = old.copy()
    new[5] = value
    assert sparse(TensorSet({"w": old}), {"w": new}) is None


def test_an_infinity_can_be_said() -> None:
    old = np.zeros(1000, np.uint16)
    new = old.copy()
    new[5] = 0x7F80
    assert sparse(TensorSet({"w": old}), {"w": new}) is not None


def test_a_patch_larger_than_the_model_is_no_gain() -> None:
    old = np.zeros(1000, np.uint16)
    assert sparse(TensorSet({"w": old}), {"w": old + 1}) is None


def test_no_change_is_an_empty_patch() -> None:
    old = np.zeros(1000, np.uint16)
    assert sparse(TensorSet({"w": old}), {"w": old.copy()}) == []


def test_the_probe_patch_reaches_every_tensor_and_changes_none() -> None:
    draw = np.random.default_rng(0)
    shapes = ((3, 5), (1,), (200,))
    tensors = TensorSet({str(i): draw.integers(0, 9, s, np.uint16) for i, s in enumerate(shapes)})
    items = unchanged(tensors)
    assert {item.name for item in items} == set(tensors)
    for item in items:
        assert item.indices is not None
        assert np.array_equal(tensors[item.name].reshape(-1)[item.indices], item.values)
        assert len(set(item.indices.tolist())) == item.indices.size
        assert {0, tensors[item.name].size - 1} <= set(item.indices.tolist())


def test_dense_is_everything() -> None:
    tensors = TensorSet({"a": np.zeros(3, np.uint16), "b": np.ones((2, 2), np.float32)})
    assert {i.name: (i.tag, i.indices) for i in dense(tensors)} == {
        "a": ("BF16", None),
        "b": ("F32", None),
    }
