"""The pure comparison, against trying every pairing."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.rewards.rows import difference, same_cell, same_row

NEAR = st.sampled_from([0, 1, 1.0, 1 + 6e-7, 1 + 1.2e-6, 2, 2.0000005, "1", None, ["00"]])
TABLES = st.lists(st.tuples(NEAR, NEAR), max_size=5)


def any_pairing(expected, got) -> bool:
    return len(expected) == len(got) and any(
        all(same_row(a, b) for a, b in zip(expected, order, strict=True))
        for order in permutations(got)
    )


@given(TABLES, TABLES)
def test_multisets_are_equal_exactly_if_some_pairing_is(expected, got):
    assert (difference(expected, got, ordered=False) is None) == any_pairing(expected, got)


@given(TABLES, st.randoms(use_true_random=False))
def test_a_shuffled_table_is_the_same_table(table, rng):
    shuffled = list(table)
    rng.shuffle(shuffled)
    assert difference(table, shuffled, ordered=False) is None


def test_greedy_pairing_would_fail_here_and_an_augmenting_path_does_not():
    step = 0.9e-6
    expected = [(1.0, 2.0), (1.0 + step, 2.0 - step)]
    got = [(1.0 + step, 2.0 + step), (1.0 + 2 * step, 2.0 - 2 * step)]
    assert difference(expected, got, ordered=False) is None


@pytest.mark.parametrize(
    "a,b,same",
    [
        (1, 1.0, True),
        (1, 2, False),
        (10**12, 10**12 + 1, False),
        (1e12, 1e12 + 1, True),
        (0.0, 1e-10, True),
        (1.0, 1.0 + 5e-7, True),
        (1.0, 1.0 + 5e-6, False),
        (1, "1", False),
        (None, 0, False),
        (None, "", False),
        (None, None, True),
        (["00"], "00", False),
        (float("inf"), float("inf"), True),
        (True, 1, False),
    ],
)
def test_cells_are_compared_type_by_type(a, b, same):
    assert same_cell(a, b) is same
    assert same_cell(b, a) is same


def test_duplicates_count_and_order_counts_only_when_asked():
    assert difference([(1,), (1,), (2,)], [(1,), (2,), (2,)], ordered=False) == "the rows differ"
    assert difference([(1,), (2,)], [(2,), (1,)], ordered=False) is None
    assert "order" in difference([(1,), (2,)], [(2,), (1,)], ordered=True)
    assert "3 rows expected, 1" in difference([(1,), (1,), (2,)], [(1,)], ordered=False)
    assert "columns" in difference([(1, 2)], [(1,)], ordered=False)


def test_a_thousand_equal_rows_are_compared_at_once():
    rows = [(1.0, "x")] * 1000
    assert difference(rows, [(1.0 + 1e-8, "x")] * 1000, ordered=False) is None
