"""Alarms over what agents did: rewarded without work, with signs of an exploit, undelivered."""

from __future__ import annotations

import pytest

from tradewind.ledger.windows import Delivery, WatchedRollout
from tradewind.rewards.trust.alarms import Action, AlarmConfig, Window, ring

CONFIG = AlarmConfig()


def watched(number: int, reward: float = 1.0, acts: int | None = 3, *touched: str):
    return WatchedRollout(f"g000000-r{number}", reward, acts, touched)


def rung(*rollouts: WatchedRollout, **fields):
    return {alarm.name: alarm for alarm in ring(Window(watched=rollouts, **fields), CONFIG)}


def test_full_reward_without_a_tool_call_is_a_sample_to_look_at():
    alarm = rung(*map(watched, range(8)), watched(8, 1.0, 0), watched(9, 0.0, 0))["idle"]
    assert alarm.action is Action.WARN
    assert alarm.rollouts == ("g000000-r8",)
    assert alarm.sentence == (
        "1 rollouts earned everything without one tool call; look at g000000-r8"
    )


def test_a_penalty_on_effort_does_not_hide_who_earned_everything_without_work():
    """With `effort` as a penalty nobody's reward is 1."""
    assert rung(*(watched(n, 0.97) for n in range(8)), watched(8, 0.99, 0))["idle"]
    assert rung(watched(1, 0.95, 3, "caches"))["touched"]
    assert rung(watched(1, 0.85, 3, "caches")) == {}


def test_where_most_do_without_tools_nobody_is_suspected():
    assert rung(*(watched(n, 1.0, 0) for n in range(8)), watched(9)) == {}
    assert rung(*(watched(n, 1.0, None) for n in range(8))) == {}


def test_full_reward_with_signs_of_an_exploit_names_their_kinds_and_the_newest_rollouts():
    found = [watched(n, 1.0, 3, "test_paths") for n in range(7)]
    missed = watched(7, 0.2, 3, "network")
    alarm = rung(*found, missed, watched(8, 1.0, 3, "caches", "test_paths"))["touched"]
    assert "8 test_paths, 1 caches" in alarm.sentence
    assert alarm.rollouts == tuple(f"g000000-r{n}" for n in (3, 4, 5, 6, 8))


@pytest.mark.parametrize(
    ("delivered", "action"),
    [(98_000, None), (97_900, Action.WARN), (95_000, Action.WARN), (94_900, Action.PAUSE)],
)
def test_tokens_that_reach_nobody_warn_and_then_pause(delivered, action):
    alarm = rung(delivery=Delivery(100_000, delivered)).get("delivered")
    assert (alarm and alarm.action) == action


def test_a_few_tokens_are_no_share():
    assert rung(delivery=Delivery(19_999, 0)) == {}


def test_an_alarm_that_is_off_is_silent():
    off = AlarmConfig(touched=Action.OFF, delivered=Action.WARN)
    window = Window(watched=[watched(1, 1.0, 3, "caches")], delivery=Delivery(100_000, 0))
    assert [(a.name, a.action) for a in ring(window, off)] == [("delivered", Action.WARN)]
