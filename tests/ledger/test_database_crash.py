"""A database server that crashes takes the last moment with it, and never a step."""

from __future__ import annotations

import contextlib
import threading

import pytest
from common import postgres
from sqlalchemy import text

from tradewind.ledger.ledger import Ledger
from tradewind.ledger.tenants import Tenant
from tradewind.types import Conflict, LedgerAway
from tradewind.types.trust import Pause


def test_a_crash_of_the_server_leaves_a_sound_ledger_with_every_step(tmp_path, make_play):
    """Commits are not flushed one by one; a step's flushes all that came before it."""
    if postgres.programs() is None:
        pytest.skip(postgres.MISSING)
    with postgres.running() as server:
        url = postgres.new_database(server.url)
        play = make_play(url, tmp_path / "bucket", tasks=6)
        for _ in range(2):
            play.closed_group()
        play.train(2)
        trained = play.ledger.last_step()
        play.closed_group()  # of this some may be lost
        with pytest.raises(LedgerAway, match="database was lost"), play.ledger.write() as conn:
            server.crash()
            conn.execute(text("SELECT 1"))
        back = threading.Thread(target=server.start)
        back.start()
        assert play.ledger.last_step() == trained, "the same process waits, and goes on"
        back.join()
        assert play.ledger.audit() == []
        with contextlib.closing(Ledger.open(url)) as other:
            assert [v.version for v in other.versions()] == [0, 1]
        go_on(play)
        assert play.ledger.audit() == []
        play.ledger.close()


@pytest.fixture
def fragile(tmp_path, make_play):
    """A ledger, and its server that writes nothing by chance."""
    if postgres.programs() is None:
        pytest.skip(postgres.MISSING)
    with postgres.running(wal_writer_delay="10s") as server:
        play = make_play(postgres.new_database(server.url), tmp_path / "bucket", tasks=6)
        yield play, server
        play.ledger.close()


def test_a_crash_of_the_server_does_not_open_a_group_again_that_the_trainer_holds(fragile):
    """It died of "is open, a step cannot consume it", with a trained step in its hands."""
    play, server = fragile
    play.closed_group()
    (held,) = play.ledger.claimable(1, version=0, max_staleness=2)
    crash(play, server)
    assert play.ledger.claimable(1, version=0, max_staleness=2) == [held]
    assert play.train(1) is not None and play.ledger.audit() == []


def test_a_verdict_on_an_end_that_a_crash_took_back_is_dropped(fragile):
    """The grader died of "is running, it cannot be graded", and later paid one end for another."""
    play, server = fragile
    play.ledger.open_training_group(2)
    rollout = play.lease().rollout_id
    play.chat(rollout)
    play.ledger.set_meta("training_open", True)  # flushed, with all that came before it
    play.finish(rollout)
    (claim,) = play.ledger.claim_finished("g", 1, play.now, 60.0)
    crash(play, server)
    scores = [play.score(claim.rollout_id, 1.0)]
    with pytest.raises(Conflict, match="is running"):
        play.ledger.write_scores(claim.rollout_id, scores)
    assert not play.ledger.write_scores(claim.rollout_id, scores, ended_at=claim.ended_at)
    play.now += 1.0
    play.finish(rollout)
    (again,) = play.ledger.claim_finished("g", 1, play.now, 60.0)
    assert not play.ledger.write_scores(claim.rollout_id, scores, ended_at=claim.ended_at)
    assert play.ledger.scores(again.rollout_id) == ()
    assert play.ledger.write_scores(again.rollout_id, scores, ended_at=again.ended_at)


def test_a_crash_takes_nothing_that_a_person_asked_for(fragile):
    """`tradewind run` waited for an evaluation that the ledger had forgotten."""
    play, server = fragile
    ledger = play.ledger
    for ask, kept in (
        (lambda: ledger.request_eval("base", 0), lambda: ledger.eval_result("base").name),
        (lambda: ledger.set_meta("training_open", True), lambda: ledger.meta("training_open")),
        (lambda: ledger.add_tenant(Tenant(name="acme"), "d" * 64), lambda: ledger.tenants(0.0)),
        (
            lambda: ledger.pause_training(Pause(alarm="nulls", cause="many", at=1.0)),
            lambda: ledger.paused(),
        ),
        (lambda: ledger.resume_training(2.0, "me"), lambda: ledger.paused() is None),
        (lambda: ledger.use_composition("v1", {"signals": []}), lambda: ledger.composition()),
    ):
        ask()
        crash(play, server)
        assert kept(), ask


def crash(play, server) -> None:
    """The server loses what it has not written, and is there again."""
    with pytest.raises(LedgerAway), play.ledger.write() as conn:
        server.crash()
        conn.execute(text("SELECT 1"))
    server.start()


def go_on(play) -> None:
    """What was lost is done again, until the next step is there."""
    for _ in range(10):
        play.now += 20.0
        play.ledger.expire(play.now)
        play.ledger.refill(max_refills=16)
        play.ledger.open_training_group(2, limit=2)
        while play.ledger.counts().rollouts.get("waiting"):
            play.rollout(1.0, 1)
        play.now += 20.0  # what was claimed before the crash can be claimed again
        for claim in play.ledger.claim_finished("g2", 100, play.now, 10.0):
            play.ledger.write_scores(claim.rollout_id, [play.score(claim.rollout_id, 1.0)])
        play.close()
        if play.train(2) is not None:
            return
    pytest.fail("the run never went on")
