"""Evaluations go first, are answered by one version, and say how sure they are."""

from __future__ import annotations

import math

import pytest

from tradewind.ledger.evals import wilson
from tradewind.types import Conflict, GroupState, Split, UserError


def test_evaluation_goes_before_training_but_only_where_its_version_is_served(play):
    train = play.ledger.open_training_group(1)
    play.ledger.request_eval("base", 0)
    assert play.ledger.open_eval_groups() == 3
    assert play.ledger.open_eval_groups() == 0
    assert play.lease(served=[5]).rollout_id.startswith(train.group_id)
    assert play.lease(served=[5]) is None
    assert play.lease(served=[0, 5]).rollout_id.startswith("g000001")


def test_a_pass_rate_tells_kinds_seen_in_training_from_others(play):
    play.ledger.request_eval("base", 0)
    play.ledger.open_eval_groups()
    for value in (1.0, 0.0, 1.0):  # kinds k0 and k1 are trained, k2 is not
        play.rollout(value, 0, served=[0])
    play.close()
    result = play.ledger.eval_result("base")
    assert result.finished and (result.done, result.total) == (3, 3)
    assert (result.overall.n, result.overall.pass_rate) == (3, pytest.approx(2 / 3))
    assert (result.kinds_seen.n, result.kinds_seen.pass_rate) == (2, 0.5)
    assert (result.kinds_unseen.n, result.kinds_unseen.pass_rate) == (1, 1.0)
    assert play.ledger.claimable(1, 0, 2) == [], "held-out rollouts are never trained"


def test_an_answer_of_another_version_is_thrown_away_and_asked_again(play):
    play.ledger.request_eval("base", 0, limit=1)
    play.ledger.open_eval_groups()
    play.rollout(1.0, 0, 1, served=[0])
    assert play.close() == []
    result = play.ledger.eval_result("base")
    assert (result.finished, result.repeated, result.tainted) == (False, 1, 0)
    play.rollout(0.0, 0, 0, served=[0])
    play.close()
    result = play.ledger.eval_result("base")
    assert (result.finished, result.repeated, result.tainted) == (True, 1, 0)
    assert (result.overall.n, result.overall.pass_rate) == (1, 0.0)


def test_an_evaluation_ends_even_if_another_version_answers_every_time(play):
    play.ledger.request_eval("base", 0, limit=1)
    play.ledger.open_eval_groups()
    for _ in range(4):
        play.rollout(1.0, 7, served=[0])
        play.close()
    result = play.ledger.eval_result("base")
    assert result.finished and result.tainted == 1 and result.overall.n == 0


def test_an_evaluation_task_without_a_verdict_is_a_null_not_a_failure(play):
    play.ledger.request_eval("base", 0, limit=2)
    play.ledger.open_eval_groups()
    play.rollout(None, 0, served=[0])
    play.ledger.refill(0)
    play.rollout(1.0, 0, served=[0])
    play.close()
    result = play.ledger.eval_result("base")
    assert (result.finished, result.nulls, result.overall.n) == (True, 1, 1)
    assert play.ledger.group("g000000").state is GroupState.REJECTED


def test_asking_twice_is_harmless_and_asking_otherwise_is_refused(play):
    play.ledger.request_eval("base", 0)
    play.ledger.request_eval("base", 0)
    with pytest.raises(Conflict, match="'base'"):
        play.ledger.request_eval("base", 1)
    with pytest.raises(KeyError):
        play.ledger.eval_result("unknown")


def test_an_evaluation_over_no_tasks_is_a_sentence(tmp_path):
    from tradewind.ledger.ledger import Ledger

    ledger = Ledger.open(tmp_path / "l.sqlite")
    with pytest.raises(UserError, match="no task to evaluate"):
        ledger.request_eval("base", 0, Split.HELDOUT)
    ledger.close()


@pytest.mark.parametrize("passed,n", [(0, 7), (3, 7), (7, 7), (141, 200)])
def test_wilson_bounds_are_the_shares_that_the_score_test_just_does_not_reject(passed, n):
    z = 1.959963984540054
    for bound in wilson(passed, n):
        if 1e-9 < bound < 1.0 - 1e-9:
            distance = abs(passed / n - bound) / math.sqrt(bound * (1 - bound) / n)
            assert distance == pytest.approx(z, rel=1e-9)
    assert wilson(0, 0) == (0.0, 1.0)
