"""Groups that teach nothing, as others met them (peers' threads on zero-variance groups)."""

from __future__ import annotations

import pytest

from tradewind.algo.advantages import group_mean
from tradewind.rewards.compose import compose_group
from tradewind.rewards.config import Composition, SignalConfig
from tradewind.types import Score


def scores(values, name="a"):
    return [
        [Score(rollout_id=f"r{i}", source=name, source_version="1", value=v)]
        for i, v in enumerate(values)
    ]


def composition(**changes):
    return Composition(signals=(SignalConfig(name="a", use="resultset", **changes),))


@pytest.mark.parametrize("value", [0.3, 1 / 3, 0.1 + 0.2, 123.456])
def test_constant_continuous_rewards_slip_through_the_filter(value):
    """OpenRLHF#1270: the filter compared the mean with 0 and 1, so that 0.3 everywhere trained."""
    assert group_mean([value] * 8) == [0.0] * 8
    assert group_mean([value, None, value]) == [0.0, None, 0.0]


def test_rewards_that_differ_by_rounding_alone_are_trained():
    """Three signals of a third each, summed in another order, are the same reward."""
    first, second = 0.1 + 0.2, 0.3
    assert first != second
    said = compose_group(composition(), scores([first, second]), {})
    assert group_mean(said.rewards, said.resolution) == [0.0, 0.0]


def test_a_spread_below_the_declared_resolution_of_a_signal_is_trained():
    values = [0.50, 0.54, 0.52, None]
    said = compose_group(composition(resolution=0.05), scores(values[:3]), {})
    assert group_mean([*said.rewards, None], said.resolution) == [0.0, 0.0, 0.0, None]
    fine = compose_group(composition(resolution=0.03), scores(values[:3]), {})
    credit = group_mean(fine.rewards, fine.resolution)
    assert credit == pytest.approx([-0.02, 0.02, 0.0])


def test_resolutions_count_as_far_as_their_signals_do():
    mixed = Composition(
        signals=(
            SignalConfig(name="a", use="resultset", weight=3.0),
            SignalConfig(name="b", use="judge", weight=1.0, resolution=0.2),
            SignalConfig(name="c", use="effort", role="penalty", weight=0.5, resolution=0.01),
        )
    )
    assert mixed.resolution == pytest.approx(0.2 / 4 + 0.005, abs=1e-8)


def test_losers_are_dropped_and_seven_identical_winners_are_kept():
    """NeMo-RL PR#4158: a mask per sample dropped the loser and kept what had no contrast."""
    credit = group_mean([1.0] * 7 + [0.0])
    assert credit == [0.125] * 7 + [-0.875]
    assert group_mean([1.0] * 7 + [None]) == [0.0] * 7 + [None]
    near = group_mean([1.0, 1.0, 1.0, 0.999], resolution=0.01)
    assert near == [0.0] * 4  # all or none of a group, never its winners alone


def test_logged_rewards_are_overwritten_by_what_filtering_left():
    """NeMo-RL PR#3794: the array that was logged was the one that had been filtered."""
    rewards = [0.5, 0.5, None, 0.500000000001]
    before = list(rewards)
    assert group_mean(rewards, resolution=1e-6) == [0.0, 0.0, None, 0.0]
    assert rewards == before
