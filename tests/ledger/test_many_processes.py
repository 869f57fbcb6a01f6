"""Several processes on one ledger, and processes that are killed between any two calls."""

from __future__ import annotations

import multiprocessing
import random
from collections import Counter
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest
from sqlalchemy import event, func, select

from tradewind.ledger import tables
from tradewind.ledger.ledger import Ledger
from tradewind.types import Conflict, LedgerAway, Stalled


def _work(path: Path, make_play, worker: str, counts) -> None:
    """Lease, chat, finish and grade until nothing is left."""
    play = make_play.__new__(make_play)
    play.path, play.now, play.ledger = path, 1000.0, Ledger.open(path)
    done = []
    while (leased := play.ledger.lease_next(worker, play.now, play.terms, ())) is not None:
        play.chat(leased.rollout_id)
        play.finish(leased.rollout_id)
        for claim in play.ledger.claim_finished(worker, 1, play.now, 60.0):
            play.ledger.write_scores(claim.rollout_id, [play.score(claim.rollout_id, 1.0)])
        done.append(leased.rollout_id)
    play.close()
    play.ledger.close()
    counts.put(done)


def test_four_processes_share_one_file_and_no_rollout_is_leased_twice(play):
    for _ in range(5):
        play.ledger.open_training_group(4)
    play.ledger.close()
    context = multiprocessing.get_context("fork")
    counts = context.Queue()
    processes = [
        context.Process(target=_work, args=(play.path, type(play), f"w{i}", counts))
        for i in range(4)
    ]
    for process in processes:
        process.start()
    leased = [rollout for _ in processes for rollout in counts.get(timeout=60)]
    for process in processes:
        process.join(timeout=60)
        assert process.exitcode == 0
    assert max(Counter(leased).values()) == 1 and len(leased) == 20
    play.reopen()
    play.close()
    assert play.ledger.closed() == 5


class Killed(BaseException):
    """The process died here."""


def _die_at_statement(ledger: Ledger, countdown: list[int]) -> None:
    @event.listens_for(ledger._engine, "before_cursor_execute")
    def _before(*_args) -> None:
        countdown[0] -= 1
        if countdown[0] == 0:
            raise Killed

    @event.listens_for(ledger._engine, "commit")
    def _commit(*_args) -> None:
        countdown[0] -= 1
        if countdown[0] == 0:
            raise Killed


def test_killed_at_any_statement_the_run_goes_on_and_no_prompt_is_skipped(play):
    """Every actor is killed again and again, before any statement or commit of any call."""
    rng = random.Random(0)
    deaths = 0
    while len(play.ledger.steps()) < 3:
        countdown = [rng.randrange(1, 150)]
        _die_at_statement(play.ledger, countdown)
        try:
            _one_round(play, rng)
        except Killed:
            deaths += 1
        play.reopen()
        play.now += 20.0  # leases and claims of the dead run out
        assert play.ledger.audit() == []
    assert deaths > 5
    consumed = [g for step in play.ledger.steps() for g in step.group_ids]
    assert len(set(consumed)) == len(consumed) == 6
    tasks = Counter(play.ledger.group(g).task_id for g in consumed)
    assert set(tasks.values()) <= {1, 2, 3}


def _one_round(play, rng: random.Random) -> None:
    ledger = play.ledger
    ledger.expire(play.now)
    ledger.refill(max_refills=1)
    while ledger.open_training_group(2, limit=4) is not None:
        pass
    while (leased := play.lease()) is not None:
        play.chat(leased.rollout_id, ledger.versions()[-1].version)
        play.finish(leased.rollout_id, rng.choice(["completed", "completed", "env_error"]))
    for claim in ledger.claim_finished("g", 100, play.now, 10.0):
        value = float(rng.random() < 0.5) if claim.outcome.status.gradable else None
        ledger.write_scores(claim.rollout_id, [play.score(claim.rollout_id, value)])
    play.close()
    play.train(2)


def _claim_and_train(path: Path | str, make_play, trainer: str, told) -> None:
    """Claim one group after the other and commit it as the next step, until none is left."""
    play = make_play.__new__(make_play)
    play.path, play.now, play.ledger = path, 1000.0, Ledger.open(path)
    trained = []
    while play.ledger.closed():
        last, parent = play.ledger.last_step(), play.ledger.versions()[-1]
        number = 0 if last is None else last.step + 1
        claimed = play.ledger.claimable(1, 0, 0)
        if not claimed:
            continue
        step = play.step(number, claimed[0].group.group_id)
        made = {"state_id": f"{trainer}{number}", "parent_state_id": parent.state_id}
        version = play.version(number + 1).model_copy(update=made)
        with suppress(Conflict):  # the other one was faster, with this group or this step
            play.ledger.commit_step(step, version)
            trained += step.group_ids
    play.ledger.close()
    told.put((trainer, trained))


def test_two_processes_that_claim_at_once_never_train_the_same_group(play):
    groups = {play.closed_group() for _ in range(12)}
    play.ledger.close()
    context = multiprocessing.get_context("fork")
    told = context.Queue()
    trainers = [
        context.Process(target=_claim_and_train, args=(play.path, type(play), name, told))
        for name in ("one", "two")
    ]
    for process in trainers:
        process.start()
    trained = [group for _ in trainers for group in told.get(timeout=60)[1]]
    for process in trainers:
        process.join(timeout=60)
        assert process.exitcode == 0
    assert sorted(trained) == sorted(groups), "each exactly once"
    play.reopen()
    assert [step.step for step in play.ledger.steps()] == list(range(12))


def test_what_is_read_together_is_of_one_moment(play):
    """A status that counts a group in two states, or a step without its groups, is no status."""
    play.closed_group()
    with play.ledger.read() as conn:
        before = conn.execute(select(func.count()).select_from(tables.steps)).scalar_one()
        assert play.train(1) is not None, "a reader blocks no writer"
        after = conn.execute(select(func.count()).select_from(tables.steps)).scalar_one()
    assert (before, after) == (0, 0)
    assert len(play.ledger.steps()) == 1


def test_a_writer_that_hangs_is_not_waited_for_for_ever(play, monkeypatch):
    """SQLite cannot end another process's transaction, so the wait ends; PostgreSQL can."""
    monkeypatch.setattr("tradewind.ledger.database.BUSY_TIMEOUT_S", 0.2)
    hanging, other = Ledger.open(play.path), Ledger.open(play.path)
    with suppress(LedgerAway), hanging.write() as conn:
        refused = pytest.raises(Stalled, match="another writer")
        with refused if conn.dialect.name == "sqlite" else nullcontext():
            other.set_meta("mine", 1)
    other.set_meta("mine", 2)
    assert other.meta("mine") == 2
    for ledger in (hanging, other):
        ledger.close()
