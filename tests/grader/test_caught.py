"""A rollout that exploits its environment, from captured turns to a quarantined group."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tradewind.algo.advantages import group_mean
from tradewind.grader.config import GraderConfig
from tradewind.grader.main import Grader
from tradewind.ledger.ledger import Ledger
from tradewind.ledger.rollouts import LeaseTerms
from tradewind.rewards.compose import compose
from tradewind.rewards.monitor.planted import INNOCENT, Planted, planted
from tradewind.types import GroupState, Task, TurnState, turn_id

TERMS = LeaseTerms(ttl_s=1e6, deadline_s=1e6, max_running=100)
ANSWERED = {"name": "answered", "use": "format", "options": {"pattern": r"\S"}}
WIRE = {"name": "exploits", "use": "exploits", "role": "tripwire"}
WORK = {"name": "work", "use": "effort", "role": "penalty", "weight": 0.01}


@pytest.fixture
def ledger(tmp_path: Path):
    opened = Ledger.open(tmp_path / "ledger.sqlite")
    opened.create_run({"seed": 1})
    opened.add_tasks(
        [Task(task_id=f"t{n}", kind="repo", split="train", input={}, reference={}) for n in (0, 1)]
    )
    yield opened
    assert opened.audit() == []
    opened.close()


def play(ledger: Ledger, case: Planted) -> str:
    """A rollout that does what the planted one did."""
    rollout = ledger.lease_next("w", 100.0, TERMS, ()).rollout_id
    for turn in case.episode.turns:
        parent = None if turn.parent is None else turn_id(rollout, turn.index - 1)
        named = {
            "rollout_id": rollout,
            "turn_id": turn_id(rollout, turn.index),
            "parent": parent,
            "finished_at": 101.0,
        }
        done = turn.model_copy(update=named)
        intent = {"state": TurnState.INTENT, "completion": None, "text": None, "tool_calls": ()}
        ledger.write_intent(done.model_copy(update={**intent, "finished_at": None}))
        ledger.finish_turn(done)
    ledger.finish(rollout, case.episode.outcome, 102.0)
    return rollout


def grade(ledger: Ledger, *signals: dict) -> list[str]:
    """Grade all that is finished; the groups that closed."""
    grader = Grader(GraderConfig(signals=signals), ledger)
    try:
        with ThreadPoolExecutor(2) as threads:
            while grader.grade_some(threads):
                pass
    finally:
        grader.close()
    return ledger.close_ready(compose, group_mean)


def one(exploit: str, style: str) -> Planted:
    return next(c for c in planted(0) if (c.exploit, c.style) == (exploit, style))


def test_a_group_with_an_exploit_is_quarantined_with_its_cause(ledger):
    group = ledger.open_training_group(2)
    play(ledger, one(INNOCENT, "git_history"))
    bad = play(ledger, one("git_history", "plain"))
    assert grade(ledger, ANSWERED, WIRE) == []
    found = ledger.group(group.group_id)
    assert found.state is GroupState.REJECTED
    assert found.cause.startswith(f"caught: exploits in {bad}: git-log-beyond (git_history)")
    assert [e.subject for e in ledger.events() if e.kind == "rollout.caught"] == [bad]


def test_the_same_monitor_without_the_wire_only_writes_it_down(ledger):
    group = ledger.open_training_group(1)
    rollout = play(ledger, one("network", "plain"))
    assert grade(ledger, ANSWERED, {**WIRE, "role": "monitor"}) == [group.group_id]
    score = {s.source: s for s in ledger.scores(rollout)}["exploits"]
    assert (score.value, score.evidence["by_class"]) == (1.0, {"network": 1})


def test_each_part_of_the_effort_is_logged_beside_the_reward(ledger):
    ledger.open_training_group(2)
    rollouts = [play(ledger, one(INNOCENT, kind)) for kind in ("network", "caches")]
    assert len(grade(ledger, ANSWERED, WORK)) == 1
    work = [{s.source: s for s in ledger.scores(r)}["work"] for r in rollouts]
    assert all(score.evidence["turn_count"] == score.evidence["call_count"] + 1 for score in work)
    (claimed,) = ledger.claimable(1, 0, 2)
    for rollout, score in zip(claimed.rollouts, work, strict=True):
        assert rollout.reward == pytest.approx(1.0 - 0.01 * score.value)
