"""The controller rings what behaviour gives reason for, and pauses when tokens reach nobody."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from common.turns import answered

from tradewind.algo.advantages import group_mean
from tradewind.controller.config import ControllerConfig
from tradewind.controller.trust import TrustWatch
from tradewind.ledger.ledger import Ledger
from tradewind.ledger.rollouts import LeaseTerms
from tradewind.rewards.compose import compose
from tradewind.rewards.config import Composition
from tradewind.types import Outcome, Score, Task

TERMS = LeaseTerms(ttl_s=1e6, deadline_s=1e6, max_running=100)
REWARD = Composition.model_validate(
    {"signals": [{"name": "right", "use": "m.py:score"}, {"use": "exploits", "role": "monitor"}]}
)


@pytest.fixture
def ledger(tmp_path):
    opened = Ledger.open(tmp_path / "ledger.sqlite")
    opened.create_run({"seed": 1})
    opened.add_tasks([Task(task_id="t", kind="k", split="train", input={}, reference={})])
    opened.use_composition(REWARD.version, REWARD.model_dump(mode="json"))
    yield opened
    assert opened.audit() == []
    opened.close()


def group(ledger: Ledger, *classes: str, delivered: bool = True) -> str:
    """A closed group of one rollout that earned everything; its id."""
    ledger.open_training_group(1)
    rollout = ledger.lease_next("w", 100.0, TERMS, ()).rollout_id
    turn = answered(ledger, rollout, tokens=10)
    if delivered:
        ledger.deliver_turns([turn.turn_id])
    ledger.finish(rollout, Outcome(status="completed"), time.time())
    ledger.claim_finished("g", 1, time.time(), 600.0)
    evidence = {"acts": 3, "by_class": dict.fromkeys(classes, 1)}
    seen = Score(
        rollout_id=rollout, source="exploits", source_version="1", value=0.5, evidence=evidence
    )
    right = Score(rollout_id=rollout, source="right", source_version="1", value=1.0)
    ledger.write_scores(rollout, [right, seen])
    ledger.close_ready(compose, group_mean)
    return rollout


def watch(ledger: Ledger, **alarms) -> TrustWatch:
    return TrustWatch(ControllerConfig(alarms={"every_s": 0, **alarms}), ledger)


def rung(ledger: Ledger, kind: str) -> list[str]:
    return [event.detail for event in ledger.events() if event.kind == kind]


def test_rollouts_with_signs_of_an_exploit_are_named_once_and_a_new_sample_again(ledger):
    looking = watch(ledger)
    first = group(ledger, "test_paths")
    for _ in range(3):
        looking.look(time.time())
    (said,) = rung(ledger, "alarm.touched")
    assert "1 test_paths" in said and first in said
    later = [group(ledger, "caches") for _ in range(5)]
    looking.look(time.time())
    assert all(rollout in rung(ledger, "alarm.touched")[1] for rollout in later)
    assert ledger.paused() is None


def test_training_pauses_when_tokens_reach_nobody_until_a_person_resumes_it(ledger):
    looking = watch(ledger, delivered_least=20)
    for number in range(10):
        group(ledger, delivered=number > 0)
    looking.look(time.time())
    pause = ledger.paused()
    assert (pause.alarm, pause.cause.split(",")[0]) == (
        "delivered",
        "only 0.900 of 100 sampled tokens reached their agents",
    )
    assert ledger.resume_training(time.time(), "a person") == pause
    looking.look(time.time())
    assert ledger.paused() is None, "only what comes after the person's word counts"
