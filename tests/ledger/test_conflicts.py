"""Who comes second: repeated and contradicting calls."""

from __future__ import annotations

import pytest

from tradewind.ledger import keys
from tradewind.ledger.ledger import Ledger
from tradewind.types import Conflict, Outcome, OutcomeStatus, ParentLost, TurnState, UserError


def test_committing_a_step_twice_is_harmless_if_equal_and_refused_if_not(play):
    first, second = play.closed_group(), play.closed_group()
    play.ledger.commit_step(play.step(0, first), play.version(1))
    play.ledger.commit_step(play.step(0, first), play.version(1))
    with pytest.raises(Conflict, match="other groups or weights"):
        play.ledger.commit_step(play.step(0, second), play.version(1))
    with pytest.raises(Conflict, match="other groups or weights"):
        play.ledger.commit_step(play.step(0, first), play.version(1, "other"))
    assert play.ledger.last_step().group_ids == (first,)


def test_a_group_cannot_be_trained_twice(play):
    group = play.closed_group()
    play.train(1)
    with pytest.raises(Conflict, match="cannot consume"):
        play.ledger.commit_step(play.step(1, group), play.version(2))
    assert [v.version for v in play.ledger.versions()] == [0, 1], "the version was rolled back too"


def test_a_step_that_skips_one_or_does_not_follow_its_parent_is_refused(play):
    group = play.closed_group()
    with pytest.raises(Conflict, match="next step is 0"):
        play.ledger.commit_step(play.step(1, group), play.version(2))
    with pytest.raises(Conflict, match="does not follow"):
        play.ledger.commit_step(play.step(0, group, version=2), play.version(2))


def test_a_second_trainer_is_told_who_holds_the_run_until_its_time_is_over(play):
    play.ledger.acquire_trainer("host:1", 100.0, 10.0)
    with pytest.raises(Conflict, match="host:1"):
        play.ledger.acquire_trainer("host:2", 109.0, 10.0)
    play.ledger.acquire_trainer("host:1", 109.0, 10.0)
    with pytest.raises(Conflict, match="host:1"):
        play.ledger.acquire_trainer("host:2", 111.0, 10.0)
    play.ledger.acquire_trainer("host:2", 120.0, 10.0)
    play.ledger.release_trainer("host:2")
    play.ledger.acquire_trainer("host:3", 121.0, 10.0)
    assert play.ledger.trainer() == ("host:3", 131.0)


def test_the_first_outcome_wins(play):
    play.ledger.open_training_group(1)
    leased = play.lease()
    play.chat(leased.rollout_id)
    first = Outcome(status="completed", artefacts={"sql": "SELECT 1"})
    assert play.ledger.finish(leased.rollout_id, first, play.now) is OutcomeStatus.COMPLETED
    assert play.ledger.finish(leased.rollout_id, first, play.now + 5) is OutcomeStatus.COMPLETED
    with pytest.raises(Conflict, match="another outcome"):
        play.ledger.finish(leased.rollout_id, Outcome(status="agent_error"), play.now)


def test_after_the_outcome_the_model_key_is_dead(play):
    play.ledger.open_training_group(1)
    leased = play.lease()
    session = play.ledger.session(keys.digest(leased.model_key))
    assert session.open and session.rollout_id == leased.rollout_id
    first = play.chat(leased.rollout_id)
    play.finish(leased.rollout_id)
    assert not play.ledger.session(keys.digest(leased.model_key)).open
    with pytest.raises(Conflict, match="over"):
        play.ledger.write_intent(play.turn(leased.rollout_id, 1, parent=first))
    with pytest.raises(Conflict, match="over"):
        play.ledger.renew(leased.rollout_id, play.now)


def test_a_turn_that_extends_what_a_crash_of_the_server_took_back_is_refused(play):
    """The gateway lives on and remembers an answer whose commit was lost with the server."""
    play.ledger.open_training_group(1)
    leased = play.lease()
    unanswered = play.turn(leased.rollout_id)
    play.ledger.write_intent(unanswered)
    remembered = play.answered(unanswered, 0)
    never_seen = remembered.model_copy(update={"turn_id": "never-seen"})
    for index, parent in enumerate((remembered, never_seen), start=1):
        turn = play.turn(leased.rollout_id, index, parent=parent)
        play.ledger.write_intent(turn)
        with pytest.raises(ParentLost, match=f"{parent.turn_id}, which has no tokens"):
            play.ledger.finish_turn(play.answered(turn, 0))
    assert {turn.state for turn in play.ledger.turns(leased.rollout_id)} == {TurnState.INTENT}


def test_the_agents_key_is_no_result_key_and_neither_is_stored(play):
    play.ledger.open_training_group(1)
    leased = play.lease()
    assert play.ledger.rollout_of_key(keys.digest(leased.model_key), "result") is None
    assert play.ledger.session(keys.digest(leased.result_key)) is None
    found = play.ledger.rollout_of_key(keys.digest(leased.result_key), "result")
    assert found == leased.rollout_id
    if isinstance(play.path, str):
        pytest.skip("what a database server stores is not ours to read")
    play.ledger.close()
    stored = b"".join(f.read_bytes() for f in play.path.parent.iterdir())
    assert leased.model_key.encode() not in stored
    assert leased.result_key.encode() not in stored


def test_a_turn_that_never_came_back_is_lost_when_the_rollout_ends(play):
    play.ledger.open_training_group(1)
    leased = play.lease()
    play.chat(leased.rollout_id)
    open_turn = play.turn(leased.rollout_id, 1)
    play.ledger.write_intent(open_turn)
    assert play.ledger.open_intents() == [open_turn.turn_id]
    play.finish(leased.rollout_id)
    assert [t.state for t in play.ledger.turns(leased.rollout_id)] == [
        TurnState.DONE,
        TurnState.LOST,
    ]
    with pytest.raises(Conflict, match="given up"):
        play.ledger.finish_turn(play.answered(open_turn, 0))


def test_turns_are_idempotent_and_never_overwritten(play):
    play.ledger.open_training_group(1)
    rollout = play.lease().rollout_id
    intent = play.turn(rollout)
    play.ledger.write_intent(intent)
    play.ledger.write_intent(intent)
    with pytest.raises(Conflict, match="other content"):
        play.ledger.write_intent(intent.model_copy(update={"prompt_ids": (7,)}))
    done = play.answered(intent, 0, 1)
    play.ledger.finish_turn(done)
    play.ledger.finish_turn(done)
    with pytest.raises(Conflict, match="other tokens"):
        play.ledger.finish_turn(play.answered(intent, 0))
    play.ledger.lose_turn(done.turn_id)
    play.ledger.deliver_turns([done.turn_id])
    assert play.ledger.turns(rollout) == [done.model_copy(update={"delivered": True})]


@pytest.mark.parametrize("logprob", [float("nan"), float("-inf"), 0.5])
def test_a_log_probability_that_cannot_be_one_never_reaches_the_ledger(play, logprob):
    play.ledger.open_training_group(1)
    intent = play.turn(play.lease().rollout_id)
    play.ledger.write_intent(intent)
    done = play.answered(intent, 0)
    bad = done.completion.model_copy(update={"logprobs": (logprob,)})
    with pytest.raises(AssertionError):
        play.ledger.finish_turn(done.model_copy(update={"completion": bad}))
    play.ledger.lose_turn(intent.turn_id)


def test_a_late_grader_does_not_change_a_verdict(play):
    play.ledger.open_training_group(1)
    rollout = play.rollout(1.0)
    assert not play.ledger.write_scores(rollout, [play.score(rollout, 0.0)])
    assert play.ledger.scores(rollout)[0].value == 1.0


def test_a_run_keeps_its_settings_and_tasks(play):
    play.ledger.create_run({"run_id": "test"})
    with pytest.raises(Conflict, match="run_id = 'test'"):
        play.ledger.create_run({"run_id": "another"})
    assert play.ledger.add_tasks([play.task(0, "train", "k0")]) == 0
    with pytest.raises(Conflict, match="other content"):
        play.ledger.add_tasks([play.task(0, "train", "another kind")])
    play.ledger.open_training_group(1)
    with pytest.raises(Conflict, match="drawing has begun"):
        play.ledger.add_tasks([play.task(50, "train")])


def test_a_ledger_that_cannot_be_opened_is_a_sentence(tmp_path):
    with pytest.raises(UserError, match="cannot be opened"):
        Ledger.open(tmp_path / "missing" / "ledger.sqlite")
    (tmp_path / "text.sqlite").write_text("not a database " * 100)
    with pytest.raises(UserError, match="cannot be opened"):
        Ledger.open(tmp_path / "text.sqlite")
