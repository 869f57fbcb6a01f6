"""The effort penalty: its curve, and what is counted."""

from __future__ import annotations

import itertools
import math
import random
from decimal import Decimal, getcontext

import pytest
from acting import acting, call, episode, turn

from tradewind.rewards.behaviour.count import Effort, count_effort
from tradewind.rewards.behaviour.effort import EffortOptions, WorkDone, cost
from tradewind.types import TokenParts

GRID = list(itertools.product([0.0, 1e-9, 0.3, 1.0, 2.5], [1e-6, 0.01, 1.0, 50.0]))


def reference(x: float, k: float, q: float) -> Decimal:
    """The formula as it is written, with 80 digits; its limit at q = 1."""
    getcontext().prec = 80
    base, power = 1 + Decimal(k) * Decimal(x), 1 - Decimal(q)
    if power == 0:
        return base.ln() / Decimal(k)
    return ((power * base.ln()).exp() - 1) / (Decimal(k) * power)


@pytest.mark.parametrize("q", [0, 1e-12, 0.5, 1 - 1e-9, 1 - 1e-15, 1, 1 + 1e-15, 1 + 1e-9, 2, 10])
def test_the_curve_is_that_of_the_formula_near_and_at_both_limits(q):
    for x, k in itertools.product([0.0, 1e-12, 1e-3, 1.0, 37.0, 1e6], [1e-9, 1e-3, 1.0, 1e3]):
        expected = reference(x, k, q)
        assert math.isclose(cost(x, k, q), float(expected), rel_tol=1e-13, abs_tol=1e-300), (x, k)


@pytest.mark.parametrize("k", [1e-3, 1.0, 40.0])
def test_the_limits_are_a_line_and_a_logarithm(k):
    assert cost(3.7, k, 0) == pytest.approx(3.7, rel=1e-15)
    assert cost(3.7, k, 1) == pytest.approx(math.log1p(k * 3.7) / k, rel=1e-15)


@pytest.mark.parametrize(("q", "k"), GRID)
def test_more_work_costs_more_and_each_further_step_less(q, k):
    rng = random.Random(f"{q} {k}")
    for _ in range(50):
        a, b = sorted(rng.uniform(0, 50) for _ in range(2))
        middle, low, high = cost((a + b) / 2, k, q), cost(a, k, q), cost(b, k, q)
        assert low <= high
        assert middle >= (low + high) / 2 - 1e-12 * abs(high), "concave"
    assert cost(0, k, q) == 0


def test_what_the_formula_is_not_made_for_is_refused():
    for x, k, q in ((-1, 1, 0.5), (1, 0, 0.5), (1, 1, -0.1), (math.inf, 1, 1), (math.nan, 1, 1)):
        with pytest.raises(ValueError, match="needs x >= 0"):
            cost(x, k, q)


def test_the_six_parts_are_counted_and_logged():
    ran = acting([(call(1), "a"), (call(2), "b")], [(call(3), "c")])
    counted = Effort(calls=30, message=5, outputs=60, call_count=3, turn_count=3)
    assert count_effort(ran.turns) == counted
    verdict = WorkDone(EffortOptions()).score(ran)
    assert {**counted.model_dump(), "x": verdict.evidence["x"]} == verdict.evidence
    assert verdict.evidence["x"] == pytest.approx(0.035 + 60 * 0.0002 + 3 * 0.02 + 3 * 0.1)


def test_parallel_calls_are_cheaper_than_the_same_calls_one_by_one():
    price = WorkDone(EffortOptions()).score
    parallel = acting([(call(n), "r") for n in range(4)])
    serial = acting(*[[(call(n), "r")] for n in range(4)])
    one, other = count_effort(parallel.turns), count_effort(serial.turns)
    assert (one.calls, one.outputs, one.call_count) == (other.calls, other.outputs, 4)
    assert price(parallel).value < price(serial).value


def test_siblings_of_one_call_are_one_turn_and_side_calls_none():
    first = turn(0, 30, 10, parts=TokenParts(thinking=6, message=4))
    sibling = turn(1, 30, 10, parent=None, choice_of="r-t0")
    side = turn(2, 99, 50, parent=None, auxiliary=True)
    lost = turn(3, 60, 1, parent="r-t0", state="lost", completion=None)
    found = count_effort([lost, side, sibling, first])
    assert found == Effort(thinking=6, message=14, turn_count=1)


def test_the_same_prompt_asked_twice_is_read_once():
    results = ({"role": "user", "content": "u" * 50},)
    first = turn(0, 30, 10, messages=results)
    again = [turn(n, 60, 5, parent="r-t0") for n in (1, 2)]
    assert count_effort([first, *again]).outputs == 20


def test_after_a_fork_results_are_measured_by_characters_and_the_rest_of_history_is_not():
    asked = {"role": "user", "content": "u" * 60}
    said = {"role": "assistant", "content": "a" * 20}
    result = {"role": "tool", "tool_call_id": "c1", "content": "r" * 20}
    first = turn(0, 60, 20, messages=(asked,), tools=())
    forked = turn(
        1, 100, 5, parent=None, kind="rewritten", messages=(asked, said, result), tools=()
    )
    found = count_effort([first, forked])
    assert (found.outputs, found.estimated) == (20, 20)


def test_a_conversation_that_begins_anew_with_a_summary_has_no_results():
    summary = ({"role": "user", "content": "what happened so far"},)
    anew = turn(1, 80, 5, parent=None, kind="root", messages=summary)
    assert count_effort([turn(0, 30, 10), anew]).outputs == 0


def test_turns_that_no_gateway_split_are_counted_whole_and_named():
    unsplit = turn(0, 30, 10, calls=(call(1),)).model_copy(update={"parts": None})
    assert count_effort([unsplit]) == Effort(calls=10, call_count=1, turn_count=1, unsplit=10)


def test_an_episode_without_turns_costs_nothing():
    assert WorkDone(EffortOptions()).score(episode()).value == 0.0
