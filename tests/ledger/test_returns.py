"""The trainer goes back: what it withdraws is not trained, and every prompt is accounted for."""

from __future__ import annotations

import pytest

from tradewind.ledger.keys import digest
from tradewind.ledger.withdrawn import off_the_way
from tradewind.types import Conflict, UserError
from tradewind.types.returned import ReturnOrder
from tradewind.types.trust import PERSON, Pause

BACK_TO_1 = ReturnOrder(back_to=1, who="ana", why="the judge was fooled", at=7.0)


def trained(play):
    """Three versions; 2 and 3 were trained after something went wrong."""
    for version in range(3):
        play.closed_group(version)
        play.train(1)
    return play


@pytest.fixture
def hacked(make_play, tmp_path):
    play = trained(make_play(tmp_path / "ledger.sqlite", tmp_path / "bucket", tasks=6))
    yield play
    play.ledger.close()


@pytest.fixture
def on_both(play):
    """The same on each kind of database, and the audit is silent in the end."""
    return trained(play)


def returned(play, order=BACK_TO_1):
    """What the trainer does, on the newest version."""
    newest = play.ledger.versions()[-1]
    old = play.ledger.version(order.back_to)
    made = play.version(newest.version + 1).model_copy(
        update={
            "stage": "return",
            "state_id": old.state_id,
            "parent_state_id": newest.state_id,
        }
    )
    return play.ledger.commit_return(order, made)


@pytest.mark.parametrize(
    ("newest", "back_to", "gone"),
    [
        (9, {}, set()),
        (10, {10: 4}, {5, 6, 7, 8, 9}),
        (12, {10: 4}, {5, 6, 7, 8, 9}),
        (11, {10: 4, 11: 9}, {10}),  # it was wrong to go back
        (13, {10: 4, 13: 2}, {*range(3, 13)}),
        (12, {10: 4, 12: 10}, {5, 6, 7, 8, 9, 11}),
        (5, {5: 0}, {1, 2, 3, 4}),
    ],
)
def test_what_a_return_withdraws(newest, back_to, gone):
    assert off_the_way(newest, back_to) == gone


def test_groups_of_withdrawn_versions_are_rejected_by_name_and_drawn_again(on_both):
    play, ledger = on_both, on_both.ledger
    before, mixed, after = play.closed_group(1), play.closed_group(1, 3), play.closed_group(2)
    running = ledger.open_training_group(2)
    play.rollout(1.0, 3)
    untouched = ledger.open_training_group(2)
    ledger.ask_return(BACK_TO_1)
    assert ledger.return_order() == BACK_TO_1
    made = returned(play)
    assert ledger.return_order() is None and ledger.returns() == [made]
    assert made.sentence == (
        "the trainer went back to version 1 as version 4, versions 2 to 3 are withdrawn; "
        "ana says: the judge was fooled"
    )
    for group, version in ((mixed, 3), (after, 2), (running.group_id, 3)):
        found = ledger.group(group)
        assert found.state == "rejected"
        across = f"it was sampled across version {version}, which was taken back"
        assert found.cause == f"withdrawn: {across}"
    assert (
        ledger.group(before).state == "closed" and ledger.group(untouched.group_id).state == "open"
    )
    draws = {ledger.open_training_group(2).task_id for _ in range(3)}
    assert draws == {ledger.group(group).task_id for group in (mixed, after, running.group_id)}
    assert ledger.counts().returned == 4
    assert ledger.versions_since(0.0) == [1], "of those that steps made the policy has this in it"


def test_what_a_pool_samples_that_has_not_followed_yet_is_rejected_by_the_claim(
    on_both,
):
    play, ledger = on_both, on_both.ledger
    group = ledger.open_training_group(2)
    ledger.ask_return(BACK_TO_1)
    returned(play)
    leased = play.lease()
    session = ledger.session(digest(leased.model_key))
    assert session.min_version == 4, "pools that have not followed must not answer"
    play.chat(leased.rollout_id, 3)
    play.finish(leased.rollout_id)
    play.ledger.claim_finished("g1", 100, play.now, 10.0)
    ledger.write_scores(leased.rollout_id, [play.score(leased.rollout_id, 1.0)])
    play.rollout(0.0, 4)
    assert play.close() == [group.group_id]
    assert ledger.claimable(1, 4, 9) == []
    assert "withdrawn: it was sampled across version 3" in ledger.group(group.group_id).cause


def test_age_is_counted_in_versions_over_a_return(hacked):
    """Version 1 has the weights of version 4, and its tokens count as 3 versions old."""
    play, ledger = hacked, hacked.ledger
    group = play.closed_group(1)
    returned(play)
    (claimed,) = ledger.claimable(1, 4, 3)
    assert claimed.group.group_id == group
    assert ledger.claimable(1, 4, 2) == []
    assert ledger.group(group).cause == "stale: its oldest token is of version 1, 3 behind 4"


def test_the_audit_names_what_was_withdrawn_and_what_was_trained_of_it(hacked):
    play, ledger = hacked, hacked.ledger
    returned(play)
    play.closed_group(4)
    (group,) = ledger.claimable(1, 4, 2)
    made = play.version(5).model_copy(update={"parent_state_id": "s1"})
    ledger.commit_step(play.step(3, group.group.group_id, version=5), made)
    report = ledger.audit_report()
    assert report.sound, report.violations
    counted = {check.name: check.counted for check in report.checks}
    assert counted["versions and steps follow each other"].endswith(
        "; version 4 returns to 1; withdrawn: 2, 3"
    )
    trained = "4 groups in 4 steps, 2 of them into versions that were withdrawn"
    assert counted["no group is trained twice"] == trained


WRONG = {
    "other weights": (
        "UPDATE returns SET back_to = 0",
        "version 4 does not have the weights of 0, to which it returned",
    ),
    "no record": ("DELETE FROM returns", "version 4 is a return, or a record says so, but not"),
    "a record of what is none": (
        "INSERT INTO returns VALUES (2, 0, 'ana', 'x', 1.0)",
        "version 2 is a return, or a record says so, but not both",
    ),
    "a gradient of withdrawn tokens": (
        "UPDATE consumption SET step = 3, position = 1 WHERE step = 2",
        "has tokens of version 2, which had been withdrawn when it was trained in step 3",
    ),
}


@pytest.mark.parametrize(("statement", "said"), WRONG.values(), ids=WRONG)
def test_the_audit_is_silent_about_a_return_with(hacked, statement, said):
    returned(hacked)
    group = hacked.closed_group(4)
    made = hacked.version(5).model_copy(update={"parent_state_id": "s1"})
    hacked.ledger.commit_step(hacked.step(3, group, version=5), made)
    assert hacked.ledger.audit() == []
    with hacked.ledger.write() as conn:
        conn.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
        assert conn.exec_driver_sql(statement).rowcount
    assert said in " ".join(hacked.ledger.audit())


def test_a_person_may_find_that_it_was_wrong_to_go_back(hacked):
    ledger = hacked.ledger
    gone, kept = hacked.closed_group(3), hacked.closed_group(1, 2)
    returned(hacked, BACK_TO_1.model_copy(update={"back_to": 2}))
    assert [ledger.group(group).state for group in (gone, kept)] == ["rejected", "closed"]
    made = returned(hacked, BACK_TO_1.model_copy(update={"back_to": 3}))
    assert made.sentence.startswith("the trainer went back to version 3 as version 5, version 4 is")
    again = hacked.closed_group(3)
    assert [c.group.group_id for c in ledger.claimable(2, 5, 9)] == [kept, again]


def test_an_order_pauses_training_waits_for_the_trainer_and_can_be_replaced(hacked):
    ledger = hacked.ledger
    ledger.ask_return(BACK_TO_1)
    pause = ledger.paused()
    assert pause.alarm == PERSON
    assert (
        pause.sentence == "paused by a person: to go back to version 1 (ana: the judge was fooled)"
    )
    other = BACK_TO_1.model_copy(update={"back_to": 0})
    ledger.ask_return(other)
    made = returned(hacked)
    assert made.back_to == 1 and ledger.return_order() == other, "that one is still to come"
    ledger.refuse_return(other, "it is gone")
    assert ledger.return_order() is None
    assert ledger.events()[-1].detail == "it is gone"


@pytest.mark.parametrize("back_to", [3, 9])
def test_only_an_earlier_version_can_be_asked_for(hacked, back_to):
    with pytest.raises(UserError, match=rf"no such version.*{back_to}.*from 0 to 2"):
        hacked.ledger.ask_return(BACK_TO_1.model_copy(update={"back_to": back_to}))
    assert hacked.ledger.paused() is None and hacked.ledger.return_order() is None


def test_a_return_that_does_not_follow_the_newest_version_changes_nothing(hacked):
    ledger = hacked.ledger
    group = hacked.closed_group(3)
    ledger.ask_return(BACK_TO_1)
    with pytest.raises(Conflict, match="does not follow"):
        ledger.commit_return(BACK_TO_1, hacked.version(6))
    assert ledger.returns() == [] and ledger.return_order() == BACK_TO_1
    assert ledger.group(group).state == "closed"


def test_an_alarm_gives_the_order_with_its_pause_and_only_once(hacked):
    ledger = hacked.ledger
    pools = Pause(alarm="judged", cause="tone was fooled", at=5.0, pools=1)
    assert ledger.pause_training(pools) and ledger.return_order() is None
    both = pools.model_copy(update={"alarm": "untrusted", "trainer": True})
    assert ledger.pause_training(both), "it goes further"
    order = ledger.return_order()
    assert (order.back_to, order.who, order.why) == (1, "the alarm 'untrusted'", "tone was fooled")
    assert "pools and the trainer go back to version 1" in ledger.paused().sentence
    returned(hacked, order)
    assert not ledger.pause_training(both) and ledger.return_order() is None
