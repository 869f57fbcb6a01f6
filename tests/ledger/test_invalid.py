"""Tasks whose environment fails every time are set aside, and only they."""

from __future__ import annotations

import pytest

from tradewind.ledger.aside import INVALID
from tradewind.types import GroupState


def attempt(play, cause: str | None = None) -> str:
    """A group of one rollout that is null for a cause, or trained; the id of its task."""
    group = play.ledger.open_training_group(1)
    play.rollout(1.0 if cause is None else None, cause=cause)
    play.ledger.refill(0, max_invalid=2)
    play.close()
    return group.task_id


def said(play) -> list[tuple[str, str]]:
    return [(e.subject, e.detail) for e in play.ledger.events() if e.kind == "task.set_aside"]


def fail(play, task: str, cause: str) -> None:
    """One more null of this task, and the others trained until it comes."""
    for _ in range(40):
        group = play.ledger.open_training_group(1)
        mine = group.task_id == task
        play.rollout(None if mine else 1.0, cause=cause if mine else None)
        play.ledger.refill(0, max_invalid=2)
        play.close()
        if mine:
            return
    pytest.fail(f"{task} was never drawn")


def test_a_task_that_always_fails_is_set_aside_by_name_while_others_are_trained(play):
    task = attempt(play, "env_error: no such order")
    assert play.ledger.group("g000000").cause.startswith(INVALID)
    fail(play, task, "env_error: no such order")
    assert play.ledger.set_aside() == {}, "nothing else was trained yet"
    fail(play, task, "env_error: no such order")
    assert play.ledger.set_aside()[task].startswith(f"{INVALID}1 rollouts came back null")
    assert said(play)[0][0] == task
    assert task not in {attempt(play) for _ in range(12)}
    assert play.ledger.restore_tasks() == [task]
    attempt(play, "env_error: no such order")
    assert play.ledger.set_aside() == {}, "it has as many tries again"


@pytest.mark.parametrize("cause", ["infra_error: lease lost", "env_error: the product is down"])
def test_what_is_the_platforms_fault_or_fails_everywhere_sets_nothing_aside(play, cause):
    for _ in range(12):
        attempt(play, cause)
    assert play.ledger.set_aside() == {} and said(play) == []


def test_a_task_that_fails_now_and_then_is_kept(play):
    task = attempt(play, "env_error: x")
    attempt(play)
    for _ in range(3):
        fail(play, task, "infra_error: lease lost")
    assert play.ledger.set_aside() == {}
    assert play.ledger.group("g000000").state is GroupState.REJECTED
