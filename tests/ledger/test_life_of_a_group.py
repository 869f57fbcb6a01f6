"""From a draw to a consumed group, and every way off that road."""

from __future__ import annotations

from collections import Counter

import pytest

from tradewind.algo.advantages import group_mean as algo_group_mean
from tradewind.ledger.draws import permutation
from tradewind.types import Composed, Conflict, GroupState, UserError


def test_a_group_goes_from_draw_to_step_with_all_its_tokens(play):
    group = play.closed_group(0, 0, size=3)
    claimed = play.ledger.claimable(1, 0, 2)
    assert [c.group.group_id for c in claimed] == [group]
    assert [r.reward for r in claimed[0].rollouts] == [0.0, 1.0, 0.0]
    assert sum(r.advantage for r in claimed[0].rollouts) == pytest.approx(0.0)
    assert all(r.turns[0].completion.output_ids == (5, 6) for r in claimed[0].rollouts)
    assert claimed[0].oldest_version() == 0
    play.ledger.commit_step(play.step(0, group), play.version(1))
    replayed = play.ledger.groups_of_step(0)
    assert [r for c in replayed for r in c.rollouts] == [r for c in claimed for r in c.rollouts]
    assert play.ledger.group(group).state is GroupState.CONSUMED
    assert play.ledger.claimable(1, 1, 2) == []


def test_all_tasks_are_drawn_once_per_epoch_in_another_order_each_time(play):
    epochs = [[play.ledger.open_training_group(1).task_id for _ in range(6)] for _ in range(3)]
    assert all(len(set(epoch)) == 6 for epoch in epochs)
    assert epochs[0] != epochs[1]


def test_the_seed_decides_which_kinds_a_short_run_practises():
    """Quickstart: by chance 2 of 64 draws were of one kind and 11 of another, equally large one."""
    kinds = ["a"] * 30 + ["b"] * 30 + ["c"] * 14 + ["d"] * 4
    for seed in range(20):
        order = permutation(seed, 0, kinds)
        assert sorted(order) == list(range(len(kinds)))
        for end in range(1, len(kinds) + 1):
            drawn = Counter(kinds[place] for place in order[:end])
            for kind, size in Counter(kinds).items():
                assert abs(drawn[kind] - end * size / len(kinds)) < 2, (seed, end, kind)


def test_spreading_the_kinds_gives_every_seed_and_epoch_the_same_order():
    kinds = ["a", "b"] * 20
    orders = {permutation(seed, epoch, kinds) for seed in range(5) for epoch in range(5)}
    assert len(orders) == 25
    one_kind = permutation(3, 0, ["a"] * 40)
    assert sorted(one_kind) == list(range(40)) and one_kind != tuple(range(40))


def test_a_limit_on_outstanding_groups_counts_open_and_closed_ones(play):
    play.closed_group()
    assert play.ledger.open_training_group(2, limit=2) is not None
    assert play.ledger.open_training_group(2, limit=2) is None
    play.train(1)
    assert play.ledger.open_training_group(2, limit=2) is not None


def test_logged_rewards_are_corrupted_where_a_group_teaches_nothing(play):
    """NeMo-RL PR#3794: filtering wrote into the rewards that were logged. Both are kept here."""

    def coarse(composition, graded, trust):
        rewards = tuple(scores[0].value for scores in graded)
        return Composed(rewards=rewards, resolution=0.05)

    play.ledger.open_training_group(2)
    first, second = play.rollout(0.50), play.rollout(0.53)
    (group,) = play.ledger.close_ready(coarse, algo_group_mean)
    claimed = play.ledger.claimable(1, 0, 2)[0]
    assert claimed.group.group_id == group
    assert [r.reward for r in claimed.rollouts] == [0.50, 0.53]
    assert [r.advantage for r in claimed.rollouts] == [0.0, 0.0]
    assert [play.ledger.scores(r)[0].value for r in (first, second)] == [0.50, 0.53]


def test_a_null_leaves_the_mean_and_is_refilled(play):
    group = play.ledger.open_training_group(2)
    play.rollout(1.0)
    play.rollout(None)
    assert play.close() == []
    assert play.ledger.refill(max_refills=3) == 1
    assert play.ledger.refill(max_refills=3) == 0
    assert play.rollout(0.0) == f"{group.group_id}-r2"
    play.close()
    claimed = play.ledger.claimable(1, 0, 2)[0]
    assert [r.reward for r in claimed.rollouts] == [1.0, None, 0.0]
    assert [r.advantage for r in claimed.rollouts] == [0.5, None, -0.5]
    assert claimed.rollouts[1].turns == ()


def test_too_many_nulls_reject_the_group_and_its_task_comes_again_first(play):
    group = play.ledger.open_training_group(2)
    running = play.lease()
    play.rollout(None)
    play.ledger.refill(0)
    rejected = play.ledger.group(group.group_id)
    assert rejected.state is GroupState.REJECTED
    assert "the product is down" in rejected.cause
    with pytest.raises(Conflict, match="over"):
        play.finish(running.rollout_id)
    again = play.ledger.open_training_group(2)
    assert (again.task_id, again.attempt) == (group.task_id, 1)
    assert [e.kind for e in play.ledger.events()] == ["group.rejected"]


def test_a_task_that_fails_for_ever_lets_the_others_go_first_but_is_not_skipped(play):
    broken = play.ledger.open_training_group(1).task_id
    opened = []
    for _ in range(12):
        if not opened or opened[-1] == broken:
            play.rollout(None)
            play.ledger.refill(0)
        else:
            play.rollout(1.0)
            play.close()
            play.train(1, max_staleness=100)
        opened.append(play.ledger.open_training_group(1).task_id)
    assert opened[0] == broken
    assert opened.count(broken) >= 4
    assert len(set(opened)) > 4


def test_a_stale_group_is_rejected_at_the_moment_of_training_and_queued_again(play):
    stale = play.closed_group(0, 0)
    for number in range(3):
        fresh = play.closed_group(number)
        play.ledger.commit_step(play.step(number, fresh), play.version(number + 1))
    also_fresh = play.closed_group(3, 2)
    claimed = play.ledger.claimable(1, 3, max_staleness=2)
    assert [c.group.group_id for c in claimed] == [also_fresh]
    assert play.ledger.group(stale).state is GroupState.REJECTED
    assert "stale" in play.ledger.group(stale).cause
    assert play.ledger.open_training_group(2).task_id == play.ledger.group(stale).task_id


def test_a_group_of_a_step_in_flight_is_claimed_again_or_rejected_as_stale(play):
    held, free = play.closed_group(0), play.closed_group(0)
    assert play.ledger.claimable(2, 1, 2, held=[held]) == []
    assert play.ledger.closed(held=[held]) == 1 and play.ledger.closed() == 2
    claimed = play.ledger.claimable(1, 1, 2, held=[held])
    assert [c.group.group_id for c in claimed] == [free]
    assert play.ledger.claimable(1, 3, 2, held=[held]) == []
    assert play.ledger.group(free).state is GroupState.REJECTED
    assert play.ledger.group(held).state is GroupState.CLOSED
    play.ledger.commit_step(play.step(0, held), play.version(1))


def test_staleness_counts_the_oldest_token_not_the_newest(play):
    for number in range(2):
        group = play.closed_group(number)
        play.ledger.commit_step(play.step(number, group), play.version(number + 1))
    mixed = play.closed_group(0, 2, 2, 2)
    assert play.ledger.claimable(1, 2, max_staleness=1) == []
    assert play.ledger.group(mixed).state is GroupState.REJECTED


def test_oldest_groups_are_claimed_first(play):
    groups = [play.closed_group() for _ in range(3)]
    assert [c.group.group_id for c in play.ledger.claimable(2, 0, 2)] == groups[:2]


def test_one_long_rollout_holds_up_its_own_group_and_no_other(play):
    slow = play.ledger.open_training_group(2).group_id
    lease, _ = play.lease(), play.rollout(0.0)
    later = [play.closed_group() for _ in range(2)]
    assert [c.group.group_id for c in play.ledger.claimable(2, 0, 2)] == later
    play.train(2)
    play.chat(lease.rollout_id)
    play.finish(lease.rollout_id)
    play.ledger.claim_finished("g1", 100, play.now, 10.0)
    play.ledger.write_scores(lease.rollout_id, [play.score(lease.rollout_id, 1.0)])
    assert play.close() == [slow], "and it is trained when it comes"


def test_no_training_task_is_a_sentence(tmp_path):
    from tradewind.ledger.ledger import Ledger

    ledger = Ledger.open(tmp_path / "empty.sqlite")
    with pytest.raises(UserError, match="no training tasks"):
        ledger.open_training_group(2)
    ledger.close()


def test_room_counted_before_a_step_opens_nothing_after_it(play):
    assert play.ledger.open_training_group(2, limit=4, at_version=0) is not None
    assert play.ledger.open_training_group(2, limit=4, at_version=1) is None, "0 is the newest"
    assert play.ledger.outstanding() == 1
