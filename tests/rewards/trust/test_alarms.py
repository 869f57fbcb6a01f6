"""Each alarm can ring, and can stay silent."""

from __future__ import annotations

import random

import pytest
from pydantic import ValidationError

from tradewind.ledger.windows import GradedNull, RewardedGroup, RewardedRollout
from tradewind.rewards.trust.alarms import Action, AlarmConfig, Trained, Window, ring

CONFIG = AlarmConfig()


def group(number: int, rewards: list[float], tokens: list[int] | None = None) -> RewardedGroup:
    lengths = tokens or [100] * len(rewards)
    members = tuple(
        RewardedRollout(f"g{number:06d}-r{i}", reward, lengths[i], 1)
        for i, reward in enumerate(rewards)
    )
    return RewardedGroup(f"g{number:06d}", f"t{number}", members, version=number // 16)


def steady(n: int, seed: int = 1, rate: float = 0.5) -> list[RewardedGroup]:
    rng = random.Random(seed)
    return [
        group(
            number,
            [float(rng.random() < rate) for _ in range(8)],
            [rng.randint(80, 120) for _ in range(8)],
        )
        for number in range(n)
    ]


LEAPT = [*steady(384), *[group(384 + i, [1.0] * 8) for i in range(16)]]


def rung(window: Window, config: AlarmConfig = CONFIG) -> dict[str, Action]:
    return {alarm.name: alarm.action for alarm in ring(window, config)}


def nulls(count: int, of: int) -> list[GradedNull]:
    return [GradedNull(i < count, "grader_error" if i < count else None) for i in range(of)]


def test_a_healthy_run_rings_nothing():
    for seed in range(20):
        window = Window(groups=steady(96, seed), nulls=nulls(2, 200), groups_per_step=4)
        assert rung(window) == {}


def test_a_run_that_has_just_begun_rings_nothing():
    assert rung(Window()) == {}
    assert rung(Window(groups=steady(1), nulls=nulls(4, 4))) == {}


def test_nulls_warn_and_then_pause_with_their_classes():
    assert rung(Window(nulls=nulls(30, 200))) == {"nulls": Action.WARN}
    (alarm,) = ring(Window(nulls=nulls(60, 200)), CONFIG)
    assert alarm.action is Action.PAUSE
    assert "60 of the last 200 rollouts were null (60 grader_error)" in alarm.sentence


def lost(count: int) -> list[GradedNull]:
    return [GradedNull(True, "infra_error")] * count


def test_a_killed_worker_with_many_leases_warns_and_does_not_pause_the_run():
    """Its 64 rollouts are a third of the window at once; all of them are played again."""
    window = Window(nulls=[*nulls(2, 136), *lost(64)])
    (alarm,) = ring(window, CONFIG)
    assert alarm.action is Action.WARN
    assert "66 of the last 200 rollouts were null (64 infra_error, 2 gr" in alarm.sentence
    assert rung(Window(nulls=lost(200))) == {"nulls": Action.WARN}


def test_what_the_platform_loses_does_not_hide_an_environment_that_breaks():
    (alarm,) = ring(Window(nulls=[*nulls(20, 50), *lost(150)]), CONFIG)
    assert alarm.action is Action.PAUSE
    assert "20 of the last 50 rollouts were null (20 grader_error)" in alarm.sentence
    assert rung(Window(nulls=[*nulls(20, 39), *lost(161)])) == {"nulls": Action.WARN}


def test_what_is_off_does_not_ring():
    off = AlarmConfig(nulls=Action.OFF)
    assert rung(Window(nulls=nulls(60, 200)), off) == {}


def test_a_leap_of_the_mean_reward_shows_the_rollouts_to_look_at():
    leapt = Window(groups=LEAPT, groups_per_step=16)
    (alarm,) = ring(leapt, CONFIG)
    assert alarm.name == "jump" and "g000384-r0" in alarm.sentence
    assert alarm.action is Action.WARN, "with so few groups in a step"
    assert rung(leapt, AlarmConfig(jump_groups=16)) == {"jump": Action.PAUSE}


def test_a_leap_can_send_pools_back_to_before_the_policy_that_made_it():
    config = AlarmConfig(jump=Action.ROLL_BACK, jump_groups=16)
    (alarm,) = ring(Window(groups=LEAPT, groups_per_step=16), config)
    assert alarm.pauses and alarm.back_to == 23, "version 24 sampled the groups that leapt"


def test_what_cannot_say_from_when_on_cannot_roll_back():
    with pytest.raises(ValidationError, match=r"nulls cannot be 'roll_back'.*use 'pause'"):
        AlarmConfig(nulls=Action.ROLL_BACK)
    with pytest.raises(ValidationError, match=r"length cannot be 'return'.*use 'pause'"):
        AlarmConfig(length=Action.RETURN)


def test_a_lucky_draw_of_tasks_is_no_leap_where_most_earn_nothing():
    """Most steps earn nothing, so the robust spread of earlier leaps is 0."""
    rng = random.Random(3)
    sparse = [group(n, [float(rng.random() < 0.03)] * 8) for n in range(184)]
    lucky = [group(184 + i, [float(i < 3)] * 8) for i in range(8)]
    assert "jump" not in rung(Window(groups=[*sparse, *lucky], groups_per_step=8))


def test_verdicts_of_fallen_judges_name_the_version_before_them():
    window = Window(trained=Trained(("tone",), first=7, last=9), untrusted="tone is quarantined")
    assert [a.name for a in ring(window, CONFIG)] == ["untrusted"]
    for config in (AlarmConfig(judged=Action.ROLL_BACK), AlarmConfig(untrusted=Action.ROLL_BACK)):
        alarm = ring(window, config)[0]
        assert (alarm.action, alarm.back_to) == (Action.ROLL_BACK, 6)


def test_learning_is_no_leap():
    rising = [g for n in range(24) for g in steady(4, seed=n, rate=0.2 + 0.03 * n)]
    assert "jump" not in rung(Window(groups=rising, groups_per_step=4))


def test_longer_answers_that_earn_more_inside_groups_warn():
    calm = steady(40)
    paid = [group(40 + i, [0.0, 0.0, 1.0, 1.0], [90, 100, 140, 150]) for i in range(40)]
    assert rung(Window(groups=[*calm, *paid])) == {"length": Action.WARN}


def test_answers_that_only_grow_warn():
    grown = [group(40 + i, [0.0, 1.0] * 4, [200] * 8) for i in range(40)]
    (alarm,) = ring(Window(groups=[*steady(40), *grown]), CONFIG)
    assert "times as long as before" in alarm.sentence


def test_everything_for_almost_nothing_is_shown():
    odd = group(99, [1.0, 0.0, 0.0, 1.0], [4, 100, 100, 100])
    (alarm,) = ring(Window(groups=[*steady(20), odd]), CONFIG)
    assert alarm.name == "short" and "g000099-r0" in alarm.sentence


def test_nothing_that_can_be_believed_pauses():
    alarms = ring(Window(nulls=nulls(30, 200), untrusted="tone is quarantined"), CONFIG)
    assert [(a.name, a.action) for a in alarms] == [
        ("untrusted", Action.PAUSE),
        ("nulls", Action.WARN),
    ]
