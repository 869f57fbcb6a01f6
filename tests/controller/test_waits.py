"""Whose turn it is, from facts alone; the room that staleness leaves."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from tradewind.controller.config import ControllerConfig
from tradewind.controller.facts import Facts
from tradewind.controller.keys import Keys
from tradewind.controller.staleness import Room, room
from tradewind.controller.stalls import StallWatch
from tradewind.controller.waits import waits
from tradewind.http.listening import listen
from tradewind.ledger.status import Counts
from tradewind.types import Beat, PoolReport, UserError
from tradewind.types.weights import Quarantine

CONFIG = ControllerConfig(groups_per_step=4, stall_s=30.0, silent_s=15.0)


REFUSED = Quarantine(version=1, reason="it computes other logprobs", tries=2, at=90.0)


def counts(**changes) -> Counts:
    fields = {
        "version": 3,
        "steps": 3,
        "draws": 5,
        "epoch": 0.5,
        "training_groups": {"open": 3, "closed": 1},
        "eval_groups": {},
        "rollouts": {},
        "nulls": 0,
        "running_at": {},
        "evals_waiting_for": (),
        "leases": 9,
        "turns": {},
        "tokens": 100,
        "turns_delivered": 0,
        "user_chats": 0,
    }
    return Counts(**{**fields, **changes})


def pool(version: int = 3, at: float = 100.0, **changes) -> PoolReport:
    fields = {
        "pool": "paris",
        "url": "u",
        "base_state_id": "b",
        "version": version,
        "state": "serving",
        "max_batch": 8,
        "running": 0,
        "waiting": 0,
        "tokens_per_s": 0.0,
        "dtype": "fp32",
        "at": at,
    }
    return PoolReport(**{**fields, **changes})


def facts(now: float = 100.0, pools=None, beats=(), training=True, workers=None, **changes):
    pools = [pool(at=now)] if pools is None else pools
    return Facts(now, counts(**changes), pools, beats, training, workers or {})


@pytest.mark.parametrize(
    "given,owner,says",
    [
        (
            facts(
                rollouts={"running": 12, "finished": 2, "waiting": 1}, running_at={"worker-1": 12}
            ),
            "worker-1",
            "trainer waits for 3 closed groups: 12 rollouts run at worker-1, 2 wait for the grader",
        ),
        (facts(rollouts={"finished": 2}), "grader", "2 wait for the grader"),
        (
            facts(
                pools=[pool(0, quarantined=(REFUSED,))],
                training=False,
                eval_groups={"open": 9},
                evals_waiting_for=(1,),
            ),
            "pool",
            "asks for version 1, pools serve: paris 0; paris refuses: it computes other logprobs",
        ),
        (facts(rollouts={"waiting": 5}), "worker", "no worker has asked for work yet"),
        (
            facts(rollouts={"waiting": 5}, workers={"w": 60.0}),
            "worker",
            "w last asked for work 40 s ago",
        ),
        (facts(pools=[]), "pool", "no pool has reported yet"),
        (facts(pools=[pool(at=80.0)]), "pool", "paris last reported 20 s ago"),
        (
            facts(pools=[pool(0, state="refusing", detail="digest differs")]),
            "pool",
            "paris serves version 0, newest is 3 (digest differs)",
        ),
        (facts(), "controller", "no rollout is open"),
        (
            facts(
                training_groups={"closed": 4},
                beats=[Beat(process="trainer", doing="step 3", since=50.0, at=99.0)],
            ),
            "trainer",
            "4 groups closed, trainer: step 3, last heard of 1 s ago",
        ),
        (facts(training_groups={"closed": 4}), "trainer", "no trainer has reported yet"),
        (
            facts(
                training=False,
                eval_groups={"open": 2},
                rollouts={"running": 1, "waiting": 1},
                running_at={"w": 1},
            ),
            "w",
            "evaluation waits for 2 answers: 1 rollout runs at w, 1 waits for a worker",
        ),
    ],
)
def test_a_wait_names_its_cause_and_its_owner(given, owner, says):
    first = waits(given, CONFIG)[0]
    assert says in str(first)
    assert first.owner == owner


def test_nobody_waits_when_nothing_is_to_be_done():
    assert waits(facts(training=False), CONFIG) == []
    assert waits(replace(facts(), planned_steps=3), CONFIG) == []
    assert waits(replace(facts(), planned_steps=4), CONFIG) != []


def test_a_stall_is_told_once_and_so_is_its_end():
    watch = StallWatch(CONFIG)
    assert watch.observe(facts(0.0)) == []
    assert watch.observe(facts(29.0)) == []
    (stalled,) = watch.observe(facts(31.0))
    assert stalled.kind == "run.stalled" and "no rollout is open" in stalled.detail
    assert stalled.subject == "controller"
    assert watch.stalled_s(40.0) == 40.0
    assert watch.observe(facts(60.0)) == []
    (moves,) = watch.observe(facts(61.0, tokens=101))
    assert moves.kind == "run.moves"
    assert watch.stalled_s(61.0) == 0.0


def test_a_long_step_is_no_stall_as_long_as_the_trainer_is_heard_of():
    watch = StallWatch(CONFIG)

    def at(now: float, heard: float) -> Facts:
        beat = Beat(process="trainer", doing="step 3", since=0.0, at=heard)
        return facts(now, beats=[beat], training_groups={"closed": 4})

    assert watch.observe(at(0.0, 0.0)) == []
    assert watch.observe(at(500.0, 499.0)) == []
    kinds = [event.kind for event in watch.observe(at(540.0, 499.0))]
    assert kinds == ["run.stalled", "process.silent"]


def test_a_process_that_falls_silent_is_named_once_and_its_return_too():
    watch = StallWatch(CONFIG)

    def at(now: float, heard: float) -> Facts:
        beat = Beat(process="grader", doing="grades", since=0.0, at=heard)
        return facts(now, beats=[beat], training=False)

    assert watch.observe(at(10.0, 0.0)) == []
    (event,) = watch.observe(at(16.0, 0.0))
    assert (event.kind, event.subject) == ("process.silent", "grader")
    assert watch.observe(at(17.0, 0.0)) == []
    (event,) = watch.observe(at(18.0, 18.0))
    assert event.kind == "process.returned"


@pytest.mark.parametrize("staleness,per_step", list(itertools.product([0, 1, 2, 5], [1, 4])))
def test_tokens_of_allowed_pools_are_never_too_stale_when_groups_are_trained_in_order(
    staleness, per_step
):
    """Simulate the worst case: every token by the oldest weights that `min_version` allows."""
    newest, served, queue = 0, 0, []
    for tick in range(400):
        now = room(newest, [served], staleness, per_step)
        while len(queue) < now.limit:
            queue.append(now.min_version)
        if len(queue) >= per_step:
            batch, queue = queue[:per_step], queue[per_step:]
            assert newest - min(batch) <= staleness
            newest += 1
        if tick % 3 == 0 or served < newest - staleness:
            served = newest
    assert newest > 100


def test_without_a_fresh_pool_there_is_no_room_and_one_that_lags_takes_room():
    assert room(7, [], 2, 8).limit == 0
    assert room(7, [4], 2, 8).limit == 0
    assert room(7, [5], 2, 8).limit == 8
    assert (room(7, [4, 6, 7], 2, 8).limit, room(7, [4, 6, 7], 2, 8).min_version) == (16, 6)
    assert room(7, [7], 2, 8).limit == 24
    assert room(7, [7], 0, 8).limit == 8


def test_a_pool_that_serves_what_a_return_withdrew_answers_nothing():
    """The newest versions before a return are not fresh, however few they are behind."""
    assert (room(7, [6, 7], 2, 8, 7).limit, room(7, [6, 7], 2, 8, 7).min_version) == (24, 7)
    assert room(7, [5, 6], 2, 8, 7) == Room(limit=0, min_version=7)
    assert room(9, [6, 8], 2, 8, 7) == Room(limit=16, min_version=8)
    behind = facts(version=7, returned=7, pools=[pool(version=6)])
    assert behind.stale_pools(CONFIG)


@pytest.mark.parametrize(("planned", "limit"), [(None, 12), (9, 12), (5, 8), (4, 4), (3, 0)])
def test_no_group_is_opened_that_no_step_will_consume(planned: int | None, limit: int):
    three_done = replace(facts(), planned_steps=planned)
    assert three_done.room(CONFIG).limit == limit


def test_a_port_in_use_and_a_missing_key_are_sentences():
    with listen("127.0.0.1", 0) as taken, pytest.raises(UserError, match="Address already in use"):
        listen("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(UserError, match="TRADEWIND_POOL_KEY"):
        Keys.from_environment({"TRADEWIND_WORKER_KEY": "x"})
