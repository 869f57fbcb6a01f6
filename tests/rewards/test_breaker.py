"""The breaker of an endpoint: when it opens, who may try, when it closes."""

from __future__ import annotations

import pytest

from tradewind.rewards.judges.breaker import LONGEST, Breaker
from tradewind.rewards.judges.failure import FailureKind, JudgeFailed, TryAgain


class World:
    """A breaker with a patience of 20 s and a clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.breaker = Breaker(20.0, lambda: self.now)

    def fail(self, *at: float) -> None:
        for self.now in at:
            with pytest.raises(TryAgain), self.breaker.call():
                raise TryAgain(FailureKind.TIMEOUT, "it did not answer in time")

    def answer(self, at: float) -> None:
        self.now = at
        with self.breaker.call():
            pass

    def turned_away(self, at: float) -> str:
        self.now = at
        with pytest.raises(JudgeFailed) as turned:
            self.breaker.check()
        assert turned.value.kind is FailureKind.AWAY and turned.value.kind.passing
        with pytest.raises(JudgeFailed), self.breaker.call():
            pytest.fail("a call was made")
        return turned.value.why


def test_it_opens_after_three_failures_that_took_its_patience() -> None:
    it = World()
    it.fail(0.0, 1.0, 2.0, 3.0, 19.0)
    assert it.breaker.away() is None, "a restart of the endpoint is no absence"
    it.fail(20.0)
    assert it.turned_away(30.0) == (
        "breaker open for 10 s (it did not answer in time), next try in 10 s"
    )


def test_two_failures_tell_nothing_however_long_they_took() -> None:
    it = World()
    it.fail(0.0, 500.0)
    assert it.breaker.away() is None


def test_any_answer_begins_the_count_anew() -> None:
    it = World()
    it.fail(0.0, 10.0)
    it.answer(15.0)
    it.fail(20.0, 25.0, 30.0)
    assert it.breaker.away() is None


def test_a_refusal_is_an_answer() -> None:
    it = World()
    it.fail(0.0, 10.0)
    with pytest.raises(JudgeFailed), it.breaker.call():
        raise JudgeFailed(FailureKind.REFUSED, "it answered 401")
    it.fail(20.0)
    assert it.breaker.away() is None


def test_one_call_tries_while_the_others_are_turned_away() -> None:
    it = World()
    it.fail(0.0, 10.0, 20.0)
    it.now = 40.0
    with pytest.raises(TryAgain), it.breaker.call():
        assert "another call has just begun" in it.turned_away(41.0)
        raise TryAgain(FailureKind.TIMEOUT, "it did not answer in time")
    away = it.breaker.away()
    assert away is not None
    assert (away.open_s, away.next_s, away.tries) == (21.0, 40.0, 1), "twice the pause"
    it.answer(81.0)
    assert it.breaker.away() is None


def test_pauses_grow_up_to_a_bound_and_begin_anew_after_an_answer() -> None:
    it = World()
    it.fail(0.0, 10.0, 20.0)
    pauses = []
    for _ in range(5):
        away = it.breaker.away()
        assert away is not None
        pauses.append(away.next_s)
        it.fail(it.now + away.next_s)
    assert pauses == [20.0, 40.0, 80.0, 160.0, 20.0 * LONGEST]
    it.answer(it.now + 160.0)
    it.fail(1000.0, 1010.0, 1020.0)
    away = it.breaker.away()
    assert away is not None and (away.next_s, away.tries) == (20.0, 0)


def test_what_began_before_it_opened_changes_it_by_an_answer_only() -> None:
    it = World()
    slow, slower = it.breaker.call(), it.breaker.call()
    slow.__enter__()
    slower.__enter__()
    it.fail(0.0, 10.0, 20.0)
    it.now = 30.0
    late = TryAgain(FailureKind.TIMEOUT, "late")
    assert not slow.__exit__(TryAgain, late, None)
    away = it.breaker.away()
    assert away is not None and (away.next_s, away.tries) == (10.0, 0)
    slower.__exit__(None, None, None)
    assert it.breaker.away() is None
