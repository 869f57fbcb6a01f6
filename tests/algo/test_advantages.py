import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.algo.advantages import group_mean

REWARDS = st.lists(st.one_of(st.none(), st.floats(-100, 100)), max_size=16)


@given(REWARDS)
def test_credit_sums_to_zero_and_null_stays_null(rewards):
    credit = group_mean(rewards)
    assert [c is None for c in credit] == [r is None for r in rewards]
    assert abs(math.fsum(c for c in credit if c is not None)) < 1e-9


def test_null_reward_moves_the_baseline():
    assert group_mean([1.0, None, 0.0]) == [0.5, None, -0.5]


def test_credit_is_not_divided_by_the_spread():
    assert group_mean([0.0, 0.0, 0.0, 1.0]) == [-0.25, -0.25, -0.25, 0.75]


@pytest.mark.parametrize("value", [0.1, 1 / 3, 0.7])
def test_equal_rewards_leave_a_rounding_residue(value):
    assert group_mean([value] * 7) == [0.0] * 7
