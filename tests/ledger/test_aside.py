"""Groups that a tripwire caught, and tasks on which that happens too often."""

from __future__ import annotations

from tradewind.algo.advantages import group_mean
from tradewind.types import Composed, GroupState


def caught(composition, graded, trust):
    """Whoever scores 1 is caught; the rest is trained."""
    rewards = tuple(scores[0].value for scores in graded)
    for scores in graded:
        if scores[0].value == 1.0:
            rollout = scores[0].rollout_id
            return Composed(rewards=rewards, rejected=f"exploits in {rollout}", caught=rollout)
    return Composed(rewards=rewards)


def attempt(play, value: float) -> str:
    """A group of one rollout that is graded and closed or rejected; the id of its task."""
    group = play.ledger.open_training_group(1)
    play.rollout(value)
    play.ledger.close_ready(caught, group_mean, max_caught=2)
    return group.task_id


def kinds(play, kind: str) -> list[tuple[str, str]]:
    return [(e.subject, e.detail) for e in play.ledger.events() if e.kind == kind]


def test_a_caught_group_is_never_trained_and_named(play):
    task = attempt(play, 1.0)
    assert play.ledger.closed() == 0
    group = play.ledger.group("g000000")
    assert (group.state, group.cause) == (GroupState.REJECTED, "caught: exploits in g000000-r0")
    assert kinds(play, "rollout.caught") == [("g000000-r0", f"task {task}: exploits in g000000-r0")]


def test_a_task_that_is_caught_again_and_again_is_set_aside_and_the_others_go_on(play):
    task = attempt(play, 1.0)
    assert attempt(play, 1.0) == task, "a rejected draw comes back first"
    assert play.ledger.set_aside() == {task: "exploits in g000001-r0"}
    assert kinds(play, "task.set_aside")[0][0] == task
    others = [attempt(play, 0.0) for _ in range(10)]
    assert task not in others
    assert sorted(others) == sorted([t for t in set(others) for _ in range(2)]), "two epochs of 5"


def test_a_person_restores_a_task_and_its_draws_come_back(play):
    task = attempt(play, 1.0)
    attempt(play, 1.0)
    for _ in range(5):
        attempt(play, 0.0)
    attempt(play, 0.0)  # an epoch later, the task's second draw rests, too
    assert play.ledger.restore_tasks(["t-none"]) == []
    assert play.ledger.restore_tasks() == [task]
    assert play.ledger.set_aside() == {}
    assert attempt(play, 0.0) == task


def test_with_every_task_set_aside_nothing_is_opened_and_nothing_is_drawn(play):
    while play.ledger.open_training_group(1) is not None:
        play.rollout(1.0)
        play.ledger.close_ready(caught, group_mean, max_caught=1)
    assert len(play.ledger.set_aside()) == 6
    draws = play.ledger.counts().draws
    assert play.ledger.open_training_group(1) is None
    assert play.ledger.counts().draws == draws
    assert play.ledger.restore_tasks(["t-0003"]) == ["t-0003"]
    assert play.ledger.open_training_group(1).task_id == "t-0003"
