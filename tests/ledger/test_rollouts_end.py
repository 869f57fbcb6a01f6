"""Leases that run out, claims that run out, outcomes that count otherwise than reported."""

from __future__ import annotations

import pytest

from tradewind.ledger.rollouts import LeaseTerms
from tradewind.types import Conflict, OutcomeStatus


def test_a_lost_lease_is_null_and_refilled_and_its_outcome_comes_too_late(play):
    group = play.ledger.open_training_group(1)
    leased = play.lease()
    play.chat(leased.rollout_id)
    assert play.ledger.expire(play.now + 9.0) == []
    assert play.ledger.expire(play.now + 11.0) == [leased.rollout_id]
    score = play.ledger.scores(leased.rollout_id)[0]
    assert score.value is None and "worker w1" in score.cause and "infra_error" in score.cause
    with pytest.raises(Conflict):
        play.finish(leased.rollout_id)
    assert play.ledger.refill(3) == 1
    assert play.rollout() == f"{group.group_id}-r1"
    assert [e.kind for e in play.ledger.events()] == ["lease.lost"]


def test_heartbeats_and_model_traffic_each_renew_a_lease(play):
    play.ledger.open_training_group(1)
    rollout = play.lease().rollout_id
    play.now += 8.0
    play.ledger.renew(rollout, play.now)
    assert play.ledger.expire(play.now + 9.0) == []
    play.now += 8.0
    turn = play.turn(rollout)
    play.ledger.write_intent(turn)
    assert play.ledger.expire(play.now + 9.0) == []
    play.now += 8.0
    play.ledger.finish_turn(play.answered(turn, 0))
    assert play.ledger.expire(play.now + 9.0) == []
    assert play.ledger.expire(play.now + 11.0) == [rollout]


def test_a_worker_that_heartbeats_past_the_deadline_loses_its_lease(play):
    play.ledger.open_training_group(1)
    rollout = play.lease().rollout_id
    play.ledger.renew(rollout, play.now + 109.0)
    assert play.ledger.expire(play.now + 109.0) == []
    assert play.ledger.expire(play.now + 110.5) == [rollout]


def test_a_rollout_that_never_called_the_model_is_the_environments_fault(play):
    play.ledger.open_training_group(2)
    rollout = play.lease().rollout_id
    play.finish(rollout)
    claimed = play.ledger.claim_finished("g", 1, play.now, 10.0)[0]
    assert claimed.outcome.status is OutcomeStatus.ENV_ERROR
    assert claimed.outcome.detail == "the model was never called"
    lost = play.lease().rollout_id
    play.ledger.write_intent(play.turn(lost))
    play.finish(lost)
    claimed = play.ledger.claim_finished("g", 1, play.now, 10.0)[0]
    assert claimed.outcome.status is OutcomeStatus.INFRA_ERROR


def test_a_claim_of_a_killed_grader_runs_out_and_nothing_is_lost(play):
    play.ledger.open_training_group(1)
    rollout = play.lease().rollout_id
    play.chat(rollout)
    play.finish(rollout, sql="SELECT 1")
    first = play.ledger.claim_finished("g1", 5, 100.0, 10.0)
    assert [(c.rollout_id, c.claims) for c in first] == [(rollout, 1)]
    assert first[0].outcome.artefacts == {"sql": "SELECT 1"}
    assert play.ledger.claim_finished("g2", 5, 105.0, 10.0) == []
    second = play.ledger.claim_finished("g2", 5, 111.0, 10.0)
    assert [(c.rollout_id, c.claims) for c in second] == [(rollout, 2)]
    assert play.ledger.write_scores(rollout, [play.score(rollout, 1.0)])
    assert play.ledger.claim_finished("g2", 5, 200.0, 10.0) == []


def test_no_more_rollouts_run_than_allowed(play):
    play.ledger.open_training_group(3)
    terms = LeaseTerms(ttl_s=10.0, deadline_s=100.0, max_running=2)
    leased = [play.ledger.lease_next("w", play.now, terms, ()) for _ in range(3)]
    assert [one is not None for one in leased] == [True, True, False]


def test_seeds_differ_between_rollouts_and_agree_after_a_restart(play):
    from tradewind.ledger import keys

    play.ledger.open_training_group(2)
    digests = [keys.digest(play.lease().model_key) for _ in range(2)]
    seeds = [play.ledger.session(d).seed for d in digests]
    assert seeds[0] != seeds[1]
    play.reopen()
    assert [play.ledger.session(d).seed for d in digests] == seeds


def test_leases_hold_on_while_the_controller_is_away(play):
    play.ledger.open_training_group(1)
    rollout = play.lease().rollout_id
    play.now += 60.0
    play.ledger.renew_all(play.now)
    assert play.ledger.expire(play.now + 9.0) == []
    assert play.ledger.expire(play.now + 11.0) == [rollout]


def test_a_lease_that_reached_nobody_is_taken_back_with_its_keys(play):
    from tradewind.ledger import keys

    play.ledger.open_training_group(1)
    first = play.lease()
    play.ledger.unlease(first.rollout_id)
    assert play.ledger.session(keys.digest(first.model_key)) is None
    second = play.lease()
    assert second.rollout_id == first.rollout_id
    assert second.model_key != first.model_key
    assert play.ledger.session(keys.digest(second.model_key)).open
