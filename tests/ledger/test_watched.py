"""What alarms read of behaviour: tool calls and signs of exploits, and tokens that arrived."""

from __future__ import annotations

from tradewind.algo.advantages import group_mean
from tradewind.ledger.windows import Delivery, WatchedRollout
from tradewind.types import Composed, Score


def first_of(composition, graded, trust):
    return Composed(rewards=tuple(scores[-1].value for scores in graded))


def played(play, value: float, **evidence) -> str:
    """A rollout with two sampled tokens, a verdict, and what a monitor wrote down."""
    rollout = play.lease().rollout_id
    play.chat(rollout, 0, 0)
    play.finish(rollout)
    play.ledger.claim_finished("g1", 100, play.now, 10.0)
    verdict = play.score(rollout, value)
    seen = Score(
        rollout_id=rollout, source="exploits", source_version="1", value=0.0, evidence=evidence
    )
    play.ledger.write_scores(rollout, [verdict, seen])
    return rollout


def test_evidence_of_the_named_signals_of_rewarded_rollouts(play):
    play.ledger.open_training_group(2)
    one = played(play, 1.0, acts=0, by_class={})
    two = played(play, 0.0, acts=4, by_class={"caches": 1})
    assert play.ledger.newest_watched(9, 0.0, ["exploits"]) == [], "not before the group closed"
    play.ledger.close_ready(first_of, group_mean)
    seen = play.ledger.newest_watched(9, 0.0, ["exploits"])
    assert seen == [WatchedRollout(one, 1.0, 0, ()), WatchedRollout(two, 0.0, 4, ("caches",))]
    assert play.ledger.newest_watched(1, 0.0, ["exploits"]) == seen[1:]
    assert play.ledger.newest_watched(9, 0.0, ["rows"])[0].acts is None
    assert play.ledger.newest_watched(9, 0.0, []) == []
    assert play.ledger.newest_watched(9, 1e12, ["exploits"]) == []


def test_tokens_that_were_sampled_and_those_that_arrived(play):
    assert play.ledger.newest_delivery(9, 0.0) == Delivery(0, 0)
    play.ledger.open_training_group(2)
    one, two = played(play, 1.0), played(play, 1.0)
    play.ledger.deliver_turns([f"{one}-t0"])
    assert play.ledger.newest_delivery(9, 0.0) == Delivery(4, 2)
    play.ledger.deliver_turns([f"{two}-t0"])
    assert play.ledger.newest_delivery(1, 0.0) == Delivery(2, 2)
    play.ledger.close_ready(first_of, group_mean)


def test_a_killed_worker_leaves_no_tokens_that_look_undelivered(play):
    """Its agents died in the middle of their calls; a share of the window would pause the run."""
    play.ledger.open_training_group(1)
    dead = play.lease().rollout_id
    play.chat(dead, 0, 0)
    play.ledger.expire(play.now + 1000.0)
    assert [found.kind for found in play.ledger.newest_nulls(9, 0.0)] == ["infra_error"]
    assert play.ledger.newest_delivery(9, 0.0) == Delivery(0, 0)
