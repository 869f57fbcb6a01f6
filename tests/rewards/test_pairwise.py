"""Two pieces of work in both orders: a preference for a place never counts."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parent))

from common.scripted_judge import Fault, Script, reply
from judge_bench import Bench, bench, criterion, exhibit

from tradewind.rewards.criteria.criterion import Rubric
from tradewind.rewards.judges.failure import JudgeFailed
from tradewind.rewards.judges.pairwise import Comparison, compare, preferred_place

OSLO, LONG = "It is Oslo.", "It is probably some city or other, as far as one can tell."


def compared(it: Bench, a: str = OSLO, b: str = LONG) -> Comparison:
    asked = criterion()
    rubric = Rubric(name="desk", version="1", criteria=(asked,))
    return compare(it.judge, rubric, asked, exhibit(a), exhibit(b))


def prefers(text: str) -> Script:
    def script(_: str, artefact: str, number: int) -> str:
        first, _, second = artefact.partition("\n\n")
        place = {first: "first", second: "second"}.get(text, "tie")
        return reply(place, text[:8])

    return script


@pytest.mark.parametrize(("wanted", "winner"), [(OSLO, "a"), (LONG, "b")])
def test_the_same_work_in_both_orders_wins(wanted: str, winner: str) -> None:
    with bench(prefers(wanted)) as it:
        found = compared(it)
        assert compared(it) == found and it.server.calls == 2, "each order is read once"
    assert found.winner == winner and found.consistent and found.place is None


@pytest.mark.parametrize("place", ["first", "second"])
def test_a_preference_for_a_place_is_a_tie_and_has_a_name(place: str) -> None:
    with bench(lambda *_: reply(place, "It is")) as it:
        found = compared(it)
    assert found.winner is None and not found.consistent and found.place == place


@pytest.mark.parametrize(("leaning", "named"), [(0.0, None), (0.5, "first")])
def test_a_planted_position_bias_is_named_and_an_unsure_judge_is_not(leaning, named) -> None:
    """Half of the pairs are too hard for it: there it guesses, or takes what stands first."""
    rng = random.Random(5)

    def script(_: str, artefact: str, number: int) -> str:
        first, _, _second = artefact.partition("\n\n")
        if rng.random() < leaning:
            return reply("first", first[:5])
        place = "first" if first.startswith("Right") else "second"
        return reply(place if rng.random() < 0.5 else rng.choice(["first", "second"]), "wor")

    with bench(script) as it:
        pairs = [(f"Right, work {n}.", f"Wrong, work {n}.") for n in range(40)]
        found = [compared(it, *(p if n % 2 else p[::-1])) for n, p in enumerate(pairs)]
    assert preferred_place(found) == named


def test_a_tie_both_times_is_consistent() -> None:
    with bench(lambda *_: reply("tie")) as it:
        found = compared(it)
    assert found.winner is None and found.consistent and found.place is None


def test_nothing_loses_without_being_asked() -> None:
    with bench(lambda *_: reply("first", "It is")) as it:
        assert compared(it, a="").winner == "b"
        assert compared(it, b="Solution:").winner == "a"
        assert compared(it, a="", b=":").winner is None
        assert it.server.calls == 0


def test_one_order_without_a_verdict_is_no_verdict() -> None:
    script = lambda c, a, n: reply("tie") if n == 0 else Fault(status=400)  # noqa: E731
    with bench(script) as it, pytest.raises(JudgeFailed):
        compared(it)
