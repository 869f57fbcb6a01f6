"""Plain data: what survives the way out of a box, and what is equal to what."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tradewind.rewards.reference import plain_value
from tradewind.rewards.sandbox.inside.plain import Other, decode, encode
from tradewind.rewards.sandbox.same import Tolerance, same

NAN = float("nan")
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
keys = st.none() | st.booleans() | st.integers() | st.text() | st.tuples(st.integers())
values = st.recursive(
    leaves | st.complex_numbers() | st.sets(keys) | st.frozensets(keys),
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(keys, inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(derandomize=True, max_examples=50)
@given(values)
def test_plain_values_come_back_as_they_were(value):
    assert same(value, decode(json.loads(json.dumps(encode(value)))))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, True),
        (0, False),
        (1, 1.0),
        ([1], (1,)),
        ([1, 2], [2, 1]),
        ({1: "x"}, {True: "x"}),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({1}, {True}),
        ({1}, frozenset({1})),
        ("1", 1),
        (b"a", "a"),
        (None, False),
        (NAN, 0.0),
        ([], {}),
    ],
)
def test_look_alikes_are_not_the_same(a, b):
    assert not same(a, b)
    assert not same(b, a)


def test_not_a_number_equals_only_itself():
    assert same(NAN, -NAN)
    assert same({"x": [NAN]}, {"x": [NAN]})
    assert not same(1.0, NAN, Tolerance(absolute=1e9))
    assert not same(NAN, 1.0, Tolerance(absolute=1e9))


def test_a_tolerance_is_for_numbers_only():
    near = Tolerance(relative=1e-6)
    assert same([1.0, 2], [1.0000001, 2.0], near)
    assert not same(1, True, near)
    assert not same(1.0, math.inf, near)
    assert same(10**400, 10**400, near) and not same(10**400, 10**400 + 1, near)
    assert not same("1.0", "1.0000001", near)


@pytest.mark.parametrize("value", [object(), type("int", (int,), {})(1), lambda: 1, range(3)])
def test_what_is_not_plain_is_equal_to_nothing(value):
    got = decode(json.loads(json.dumps(encode(value))))
    assert isinstance(got, Other)
    assert not same(1, got)
    for ask in (lambda: got == 1, lambda: got != 1, lambda: bool(got)):
        with pytest.raises(TypeError, match="not plain data"):
            ask()


@pytest.mark.parametrize(
    "data",
    [{"x": 1}, {}, {"int": "zz"}, {"tuple": 1}, {"dict": [[1]]}, {"bytes": "0"}, {"complex": [1]}],
)
def test_forged_data_is_refused(data):
    with pytest.raises(ValueError, match="not plain data"):
        decode(data)
    with pytest.raises(ValueError, match="not plain data"):
        decode({"tuple": [1, data]})


def test_a_task_writes_tuples_and_sets_as_json_can():
    written = {"low": {"tuple": [1, 2]}, "seen": [{"set": ["a"]}]}
    assert same(plain_value(written), {"low": (1, 2), "seen": [{"a"}]})
