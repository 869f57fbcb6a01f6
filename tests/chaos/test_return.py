"""A person takes a run's trainer back two versions; it is killed while it goes. All processes are
real: pools follow by the ordinary delta, and the run ends as if nothing had died.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from database import Served
from fleet import Fleet
from setting import POOLS, TRAINER, Setting
from sqlalchemy import select

from tradewind.ledger.ledger import Ledger
from tradewind.ledger.tables import groups, rollouts, turns
from tradewind.types.returned import ReturnOrder
from tradewind.types.trust import PERSON, Pause

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

FULL = os.environ.get("TRADEWIND_FULL") == "1"
SETTING = Setting(seed=3, lr=3e-3, stall_s=30.0, patience_s=60.0)
LEAST = 3
"""Steps before somebody looks."""


def until(fleet: Fleet, happened: Callable[[], bool], every_s: float = 0.05) -> None:
    deadline = time.monotonic() + 200
    while not happened():
        assert time.monotonic() < deadline, fleet.logs()
        fleet.poll()
        time.sleep(every_s)


def sampled_after(ledger: Ledger, version: int) -> set[str]:
    """Training groups that wait, and have tokens of a later version than this."""
    query = (
        select(groups.c.group_id)
        .join(rollouts, rollouts.c.group_id == groups.c.group_id)
        .join(turns, turns.c.rollout_id == rollouts.c.rollout_id)
        .where(groups.c.state.in_(["open", "closed"]), turns.c.newest_version > version)
    )
    with ledger.read() as conn:
        return set(conn.execute(query).scalars())


def stands_still(fleet: Fleet) -> bool:
    """The trainer waits for a person, and no rollout is in work."""
    waits = {beat.process: beat.waiting_for or "" for beat in fleet.ledger.beats()}
    working = {"running", "finished"} & fleet.ledger.counts().rollouts.keys()
    return "a person" in waits.get(TRAINER, "") and not working


def goes_back(fleet: Fleet) -> bool:
    return any("go back" in b.doing for b in fleet.ledger.beats() if b.process == TRAINER)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"] if FULL else ["sqlite"])
def test_a_trainer_that_is_killed_on_its_way_back_arrives_once_and_all_follow(
    model: Path, tmp_path: Path, server: Served | None
) -> None:
    with Fleet(tmp_path, model, SETTING, server) as fleet:
        ledger = fleet.ledger
        until(fleet, lambda: ledger.counts().steps >= LEAST)
        ledger.pause_training(Pause(alarm=PERSON, cause="to look at it", at=time.time()))
        until(fleet, lambda: stands_still(fleet))
        newest = ledger.counts().version
        goal, lost = newest - 2, sampled_after(ledger, newest - 2)
        ledger.ask_return(ReturnOrder(back_to=goal, who="ana", why="hacked", at=time.time()))
        until(fleet, lambda: goes_back(fleet), every_s=0.001)
        fleet.hurt("kill", TRAINER)
        until(fleet, lambda: ledger.return_order() is None)
        states = {version.version: version.state_id for version in ledger.versions()}
        assert states[newest + 1] == states[goal] != states[newest]
        until(fleet, lambda: serve(ledger) == {(name, newest + 1) for name in POOLS})
        rejected = {name: ledger.group(name) for name in lost}
        assert all(g.cause.startswith("withdrawn: ") for g in rejected.values())
        steps = ledger.counts().steps + 2
        fleet.finish_at(steps)
        ledger.resume_training(time.time(), "ana")
        until(fleet, fleet.done)
        assert ledger.audit() == []
        assert [(made.version, made.back_to) for made in ledger.returns()] == [(newest + 1, goal)]
        assert [step.step for step in ledger.steps()] == list(range(steps))
        assert ledger.versions()[-1].version == steps + 1
        proven = {(a.pool, a.state_id) for a in ledger.attestations() if a.version == newest + 1}
        assert proven == {(name.removeprefix("pool-"), states[goal]) for name in POOLS}
        events = [event.kind for event in ledger.events()]
        assert events.count("trainer.returned") == 1 and "replay.diverged" not in events
        assert fleet.crashes == []


def serve(ledger: Ledger) -> set[tuple[str, int]]:
    return {(f"pool-{report.pool}", report.version) for report in ledger.pools()}
