"""A finished rollout that waits for a judge: given back, claimed later, scored once."""

from __future__ import annotations

from tradewind.ledger.groups import reject


def finished(play) -> str:
    leased = play.lease().rollout_id
    play.chat(leased)
    play.finish(leased)
    return leased


def claims(play, owner: str, now: float):
    return play.ledger.claim_finished(owner, 10, now, 10.0)


def test_what_is_put_off_is_finished_as_before_and_free_for_anybody_later(play) -> None:
    play.ledger.open_training_group(1)
    rollout = finished(play)
    for tries in range(3):
        now = 1000.0 + 100 * tries
        (found,) = claims(play, "a", now)
        assert (found.claims, found.put_off) == (1, tries), "such a claim killed no grader"
        assert play.ledger.put_off("a", rollout, now + 50)
        assert claims(play, "b", now + 49) == []
        assert play.ledger.waiting_for_judges() == 1
        assert play.reopen().audit() == []
    (found,) = claims(play, "b", 2000.0)
    assert play.ledger.write_scores(rollout, [play.score(rollout, 1.0)])
    assert play.ledger.waiting_for_judges() == 0
    (group,) = play.close()
    assert group == rollout.partition("-")[0]


def test_who_lost_the_claim_puts_nothing_off(play) -> None:
    group = play.ledger.open_training_group(1)
    rollout = finished(play)
    assert claims(play, "slow", 1000.0)
    assert claims(play, "quick", 1020.0), "the first claim ran out"
    assert not play.ledger.put_off("slow", rollout, 9000.0)
    play.ledger.hold_claims("quick", [rollout], 1100.0)
    with play.ledger.write() as conn:
        reject(conn, group.group_id, "given up", wait=True)
    assert not play.ledger.put_off("quick", rollout, 9000.0)
    assert not play.ledger.write_scores(rollout, [play.score(rollout, 1.0)])


def test_a_rollout_that_waits_for_a_judge_is_not_replaced(play) -> None:
    """Nothing is sampled again for a verdict that comes late."""
    play.ledger.open_training_group(2)
    late, other = finished(play), finished(play)
    assert len(claims(play, "a", 1000.0)) == 2
    play.ledger.put_off("a", late, 5000.0)
    play.ledger.write_scores(other, [play.score(other, 0.0)])
    assert play.ledger.refill(8, min_size=1) == 0
    assert play.close() == [] and play.lease() is None
    assert claims(play, "a", 6000.0)
    play.ledger.write_scores(late, [play.score(late, 1.0)])
    assert len(play.close()) == 1
