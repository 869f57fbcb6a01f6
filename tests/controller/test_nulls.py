"""What cannot be graded leaves its group one by one, and is counted by task."""

from __future__ import annotations

import pytest


def test_a_group_is_kept_if_enough_of_it_remains_and_says_so(world):
    w = world(group_size=4, groups_per_step=1, max_staleness=0, max_refills=1, max_running=1)
    w.pool()
    w.train()
    for value in (1.0, None, 0.0, None):  # the second null is one too many to replace
        w.rollout(value)
    w.rollout(0.0)  # the refill of the first null
    w.until(lambda: w.ledger.closed() == 1)
    (closed,) = w.ledger.claimable(1, 0, 0)
    assert closed.group.size == 3
    credit = sorted(r.advantage for r in closed.rollouts if r.reward is not None)
    assert credit == pytest.approx([-1 / 3, -1 / 3, 2 / 3]), "a null is in no mean"
    assert [r.advantage for r in closed.rollouts].count(None) == 2
    (short,) = [e for e in w.ledger.events() if e.kind == "group.short"]
    assert "goes on with 3 of 4 rollouts: 2 came back null" in short.detail


def test_a_group_of_which_too_little_remains_is_given_up_and_its_task_comes_again(world):
    few = {"max_refills": 0, "max_running": 1, "min_group_share": 1.0}
    w = world(group_size=4, groups_per_step=1, max_staleness=0, **few)
    w.pool()
    w.train()
    first = w.rollout(None)
    w.until(lambda: any(e.kind == "group.rejected" for e in w.ledger.events()))
    again = w.lease()
    assert again["task_id"] == first["task_id"] and again["rollout_id"] != first["rollout_id"]


def test_nulls_are_counted_by_task_and_by_whether_the_model_had_answered(world):
    w = world(group_size=2, groups_per_step=1, max_staleness=0)
    w.pool()
    w.train()
    played = w.rollout(None)
    unplayed = w.lease()
    assert w.report(unplayed).json()["status"] == "env_error", "the model was never called"
    w.grade(unplayed, None)
    w.rollout(1.0)
    (rate,) = w.status()["nulls_by_task"]
    assert rate["task_id"] == played["task_id"] and rate["causes"] == {"env_error": 2}
    assert (rate["nulls"], rate["rollouts"], rate["after_answer"]) == (2, 3, 1)


@pytest.mark.parametrize("status", ["env_error", "grader_error", "infra_error"])
def test_the_three_null_statuses_are_taken_as_reported(world, status):
    w = world()
    w.pool()
    w.train()
    lease = w.lease()
    w.chat(lease)
    assert w.report(lease, status=status, detail="down").json()["status"] == status
