"""The formula, on the whole group: gates, weights, caps, penalties, tripwires, nulls, trust."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from tradewind.rewards.compose import compose, compose_group, is_null
from tradewind.rewards.config import Composition
from tradewind.types import Score

ROWS = {"name": "rows"}
GATE = {"name": "rows", "role": "gate"}
TONE = {"name": "tone", "use": "judge"}


def of(*signals: dict) -> Composition:
    return Composition(signals=signals)


def rollout(index: int = 0, **values: float | None) -> list[Score]:
    return [
        Score(
            rollout_id=f"g000000-r{index}",
            source=name.replace("_", "-"),
            source_version="1",
            value=value,
            cause=f"{name} says so",
        )
        for name, value in values.items()
    ]


def reward(composition: Composition, trust=None, **values: float | None) -> float | None:
    return compose_group(composition, [rollout(**values)], trust or {}).rewards[0]


def test_one_signal_is_the_reward_bit_for_bit():
    assert reward(of(ROWS), rows=0.1 + 0.2) == 0.1 + 0.2
    assert reward(of({**ROWS, "weight": 3.0}), rows=-2.5) == -2.5


def test_weights_are_shares_and_negative_ones_take_off_within_bounds():
    two = of({"name": "a", "weight": 3.0}, {"name": "b"})
    assert reward(two, a=1.0, b=0.0) == 0.75
    against = of({"name": "a", "weight": 2.0}, {"name": "b", "weight": -4.0})
    assert reward(against, a=1.0, b=0.25) == 0.5
    assert reward(against, a=1.0, b=1.0) == 0.0


def test_a_closed_gate_decides_whatever_the_rest_says():
    gated = of(GATE, {"name": "style"})
    assert reward(gated, rows=1.0, style=0.5) == 0.5
    assert reward(gated, rows=0.0, style=1.0) == 0.0
    assert reward(of(GATE), rows=1.0) == 1.0


def test_a_cap_bounds_and_a_penalty_is_taken_off_after_it():
    capped = of(
        ROWS,
        {"name": "sources", "role": "cap", "bar": 0.5, "most": 0.3},
        {"name": "effort", "role": "penalty", "weight": 0.1},
    )
    assert reward(capped, rows=1.0, sources=0.5, effort=0.0) == 1.0
    assert reward(capped, rows=1.0, sources=0.4, effort=2.0) == pytest.approx(0.1)
    assert reward(capped, rows=0.2, sources=0.0, effort=0.0) == 0.2


def test_a_monitor_is_never_part_of_the_reward_even_when_it_is_null():
    watched = of(ROWS, {"name": "length", "role": "monitor"})
    assert reward(watched, rows=0.5, length=9.0) == 0.5
    assert reward(watched, rows=0.5, length=None) == 0.5


def test_a_tripwire_rejects_the_whole_group_by_name():
    wired = of(ROWS, {"name": "exploits", "role": "tripwire"})
    clean = rollout(0, rows=1.0, exploits=0.0)
    caught = rollout(1, rows=1.0, exploits=1.0)
    composed = compose_group(wired, [clean, caught], {})
    assert composed.rejected == "exploits in g000000-r1: exploits says so"
    assert composed.caught == "g000000-r1"
    assert composed.rewards == (1.0, 0.0), "an evaluation counts it as failed"
    assert compose_group(wired, [clean], {}).rejected is None


@pytest.mark.parametrize(
    "signals,values,null",
    [
        ([ROWS], {"rows": None}, True),
        ([GATE, {"name": "a"}], {"rows": None, "a": 1.0}, True),
        ([ROWS, {"name": "c", "role": "cap"}], {"rows": 1.0, "c": None}, True),
        ([ROWS, {"name": "c", "role": "penalty"}], {"rows": 1.0, "c": None}, True),
        ([ROWS, {"name": "c", "role": "tripwire"}], {"rows": 1.0, "c": None}, True),
        ([{**ROWS, "weight": 9.0}, {"name": "a"}], {"rows": 1.0, "a": None}, False),
        ([{**ROWS, "weight": 8.0}, {"name": "a"}], {"rows": 1.0, "a": None}, True),
        ([GATE, {"name": "a"}], {"rows": 0.0, "a": None}, False),
        ([ROWS], {"lease": None}, True),
    ],
)
def test_a_null_counts_exactly_where_the_formula_needs_the_value(signals, values, null):
    assert is_null(of(*signals), rollout(**values)) is null


@pytest.mark.parametrize(
    "signals,values,trust,null",
    [
        ([ROWS, TONE], {"rows": 1.0, "tone": None}, {}, False),
        ([ROWS, TONE], {"rows": 1.0, "tone": None}, {"tone": 0.5}, True),
        ([ROWS, {**TONE, "role": "gate"}], {"rows": 1.0, "tone": None}, {"tone": 0.0}, False),
        ([ROWS, {**TONE, "role": "cap"}], {"rows": 1.0, "tone": None}, {}, False),
        ([ROWS, {**TONE, "role": "penalty"}], {"rows": 1.0, "tone": None}, {}, False),
        ([ROWS, {**TONE, "role": "tripwire"}], {"rows": 1.0, "tone": None}, {}, False),
        ([ROWS, TONE], {"rows": None, "tone": 1.0}, {}, True),
        ([ROWS, {**TONE, "role": "gate"}], {"rows": None, "tone": 0.0}, {}, True),
        ([ROWS, {**TONE, "weight": 0.2}], {"rows": 1.0, "tone": None}, {"tone": 0.5}, False),
        ([TONE], {"tone": None}, {}, True),
    ],
)
def test_a_null_of_a_judge_without_weight_nulls_no_reward(signals, values, trust, null):
    assert is_null(of(*signals), rollout(**values), trust) is null


def test_a_small_null_leaves_the_formula_for_the_whole_group_not_for_one_rollout():
    mixed = of({"name": "rows", "weight": 9.0}, {"name": "a"})
    group = [rollout(0, rows=1.0, a=0.0), rollout(1, rows=1.0, a=None)]
    composed = compose_group(mixed, group, {})
    assert composed.rewards == (1.0, 1.0), "by one formula"
    assert composed.left_out == {"a": "a says so"}


def test_a_null_rollout_takes_no_part_and_the_others_keep_their_formula():
    mixed = of({"name": "rows", "weight": 9.0}, {"name": "a"})
    group = [rollout(0, rows=1.0, a=0.0), rollout(1, rows=None, a=None)]
    assert compose_group(mixed, group, {}).rewards == (0.9, None)


def test_a_judge_counts_as_far_as_it_is_trusted():
    both = of(ROWS, TONE)
    assert reward(both, {"tone": 1.0}, rows=1.0, tone=0.0) == 0.5
    assert reward(both, {"tone": 0.5}, rows=1.0, tone=0.0) == pytest.approx(2 / 3)
    composed = compose_group(both, [rollout(rows=0.25, tone=1.0)], {"tone": 0.0})
    assert (composed.rewards, composed.left_out) == ((0.25,), {"tone": "its judge is not trusted"})


def test_a_judge_of_whom_nobody_has_said_anything_has_no_weight():
    assert reward(of(ROWS, TONE), rows=0.25, tone=1.0) == 0.25
    composed = compose_group(of(TONE), [rollout(tone=1.0)], {})
    assert composed.rewards == () and "no signal is left (tone: its judge" in composed.rejected
    assert reward(of(GATE, TONE), rows=1.0, tone=0.0) == 1.0, "the gate alone is left"
    untrusted_wire = of(ROWS, {**TONE, "role": "tripwire"})
    assert compose_group(untrusted_wire, [rollout(rows=1.0, tone=1.0)], {}).rejected is None


def test_what_takes_off_is_named_when_nothing_is_left_to_take_it_from():
    """Its judge fell: the gate alone pays, and the negative signal has not gone without a word."""
    against = {"name": "long", "weight": -1.0}
    composed = compose_group(of(GATE, TONE, against), [rollout(rows=1.0, tone=1.0, long=1.0)], {})
    assert composed.rewards == (1.0,)
    assert composed.left_out == {
        "tone": "its judge is not trusted",
        "long": "no weight above 0 is left that it could take from",
    }


def test_a_composition_is_data_with_a_version():
    one, other = of(ROWS), of({**ROWS, "weight": 2.0})
    assert one.version == of(ROWS).version != other.version
    assert compose(one.model_dump(mode="json"), [rollout(rows=0.5)], {}).rewards == (0.5,)


@pytest.mark.parametrize(
    "signals,says",
    [
        ([ROWS, ROWS], "two signals are called 'rows'"),
        ([{**ROWS, "role": "monitor"}], "nothing would be rewarded"),
        ([{**ROWS, "weight": -1.0}], "above 0"),
        ([{**ROWS, "rule": "gate"}], "Extra inputs"),
        ([{**ROWS, "weight": float("nan")}], "finite"),
        ([{"name": "no spaces please"}], "letters, digits"),
    ],
)
def test_a_composition_that_cannot_work_is_refused_with_a_sentence(signals, says):
    with pytest.raises(ValidationError, match=says):
        of(*signals)


def test_a_closed_gate_whose_judge_is_not_trusted_excuses_no_missing_verdict():
    """It left the formula; the verdict that nobody asked for leaves it too, and nothing crashes."""
    composition = of(
        {"name": "tone", "use": "judge", "role": "gate"},
        {"name": "style", "use": "judge"},
        {"name": "rows", "use": "resultset"},
    )
    group = [rollout(0, tone=0.0, rows=1.0), rollout(1, tone=1.0, rows=0.0, style=1.0)]
    composed = compose_group(composition, group, {"tone": 0.0, "style": 1.0})
    assert composed.rewards == (1.0, 0.0)
    assert set(composed.left_out) == {"tone", "style"}
