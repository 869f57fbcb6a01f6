"""Which rollouts people are asked about: a fair sample, and the doubtful ones apart from it."""

from __future__ import annotations

from statistics import mean

import pytest

from tradewind.ledger.trust import JudgedRollout
from tradewind.rewards.trust.sampling import doubt, wanted
from tradewind.types.trust import Sampling


def judged(number: int, value: float | None = 1.0, truth=None, **evidence) -> JudgedRollout:
    name = f"g{number:06d}-r0"
    return JudgedRollout(
        name, "t", 0, value, {"confidence": 0.99, **evidence}, truth, float(number)
    )


def asked(stream, labelled=(), others=None, n=40, signal="tone"):
    given = {"signal": signal, "n": n, "random_share": 0.5}
    return wanted(stream, set(labelled), others or {}, **given)


def test_what_was_labelled_because_it_is_doubtful_never_shifts_the_random_sample():
    """One in ten answers is doubtful, and all doubtful ones are wrong: their share must stay so."""
    stream = [judged(n, truth=float(n % 10 > 0), confidence=1.0) for n in range(2000)]
    labelled: list[str] = []
    drawn: list[str] = []
    for _ in range(8):
        queue = asked(stream, labelled)
        labelled += [w.rollout_id for w in queue]
        drawn += [w.rollout_id for w in queue if w.sampling is Sampling.RANDOM]
    assert len(drawn) == len(set(drawn)) == 160 and len(set(labelled)) > 240
    wrong = {found.rollout_id for found in stream if found.truth == 0.0}
    assert mean(name in wrong for name in drawn) == pytest.approx(0.1, abs=0.05)
    assert all(name in wrong for name in set(labelled) - set(drawn))
    assert queue[0].probability in (None, 160 / 2000)


def test_two_people_get_the_same_rollouts_by_lot_so_that_they_can_agree():
    stream = [judged(n) for n in range(100)]
    ana, bo = asked(stream), asked(stream)
    assert ana == bo
    ids = {w.rollout_id for w in ana}
    assert ids.isdisjoint(w.rollout_id for w in asked(stream, ids))
    assert asked(stream, signal="other") != ana


@pytest.mark.parametrize(
    "found,other,expected",
    [
        (judged(0, 1.0, truth=0.0), None, 1.0),
        (judged(0, 1.0), 0.0, 1.0),
        (judged(0, 0.5), 1.0, 1.0),
        (judged(0, 1.0, confidence=0.6), None, 0.8),
        (judged(0, 1.0, agreement=2 / 3), 1.0, 2 / 3),
        (judged(0, 1.0, confidence=1.0), 1.0, 0.0),
        (judged(0, 0.0, confidence="sure"), None, 0.0),
    ],
)
def test_doubt_is_a_contradiction_or_what_the_judge_itself_leaves_open(found, other, expected):
    assert doubt(found, other) == pytest.approx(expected)


def test_nobody_is_asked_about_a_verdict_that_is_not_there():
    assert asked([judged(0, None)]) == []
    assert asked([]) == []
    sure = [judged(n, confidence=1.0) for n in range(50)]
    assert {w.sampling for w in asked(sure, n=10)} == {Sampling.RANDOM}
