"""A database server that crashes takes the last moment with it, and never a step."""

from __future__ import annotations

import contextlib
import threading

import pytest
from common import postgres
from sqlalchemy import text

from tradewind.ledger.ledger import Ledger
from tradewind.types import LedgerAway


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


def test_a_crash_of_the_server_does_not_open_a_group_again_that_the_trainer_holds(
    tmp_path, make_play
):
    """It died of "is open, a step cannot consume it", with a trained step in its hands."""
    if postgres.programs() is None:
        pytest.skip(postgres.MISSING)
    with postgres.running(wal_writer_delay="10s") as server:  # nothing is written by chance
        play = make_play(postgres.new_database(server.url), tmp_path / "bucket", tasks=6)
        play.closed_group()
        (held,) = play.ledger.claimable(1, version=0, max_staleness=2)
        with pytest.raises(LedgerAway), play.ledger.write() as conn:
            server.crash()
            conn.execute(text("SELECT 1"))
        server.start()
        assert play.ledger.claimable(1, version=0, max_staleness=2) == [held]
        assert play.train(1) is not None and play.ledger.audit() == []
        play.ledger.close()


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
