"""A verifier out of somebody's file."""

from __future__ import annotations

import re

import pytest

from tradewind.rewards.config import SignalConfig
from tradewind.rewards.registry import check_tasks, open_signal
from tradewind.rewards.signal import VerifierFailed
from tradewind.types import Episode, Outcome, Task, UserError


def make_task(sql: object, *, ordered: bool = False, number: int = 0) -> Task:
    reference = {"ordered": ordered} if sql is None else {"sql": sql, "ordered": ordered}
    return Task(
        task_id=f"t-{number:04d}",
        kind="k",
        split="train",
        input={"question": "?"},
        reference=reference,
    )


def episode(task: Task, sql: object) -> Episode:
    outcome = Outcome(status="completed", artefacts={"sql": sql})
    return Episode(rollout_id="g000000-r0", task=task, outcome=outcome)


SOURCE = """
import os, sys, time
print("noise at import")

def half(task, outcome):
    print("noise", flush=True)
    return 0.5

def crash(task, outcome):
    raise KeyError("no such thing")

def die(task, outcome):
    os._exit(0)

def spin(task, outcome):
    while True:
        pass

def nan(task, outcome):
    return float("nan")

def chatty(task, outcome):
    for _ in range(1 << 12):
        os.write(1, bytes(1 << 20))
    return 1.0

def flood(task, outcome):
    return {"value": 1.0, "cause": "x" * (1 << 24)}

def unknown(task, outcome):
    return None

class Strict:
    version = "3"

    def check(self, task):
        return None if "sql" in task["reference"] else "no sql"

    def score(self, task, outcome):
        return {"value": float(outcome["artefacts"]["sql"] == task["reference"]["sql"])}

strict = Strict()
"""


@pytest.fixture
def verifier(tmp_path):
    (tmp_path / "mine.py").write_text(SOURCE)
    opened = []

    def open_it(name: str, deadline_s: float = 10.0):
        entry = f"{tmp_path / 'mine.py'}:{name}"
        options = {"deadline_s": deadline_s}
        opened.append(open_signal(SignalConfig(use=entry, options=options)))
        return opened[-1]

    yield open_it
    for reward in opened:
        reward.close()


def test_a_function_is_enough_and_its_prints_do_no_harm(verifier):
    half = verifier("half")
    assert re.fullmatch("[0-9a-f]{12}", half.version), "of its code, if it names none"
    assert half.score(episode(make_task("x"), "y")).value == 0.5
    assert half.score(episode(make_task("x"), "y")).value == 0.5


def test_an_object_has_a_version_and_admission(verifier):
    strict = verifier("strict")
    assert strict.version == "3"
    assert strict.score(episode(make_task("x"), "x")).value == 1.0
    with pytest.raises(UserError, match="t-0000: no sql"):
        check_tasks(strict, [make_task(None)])


@pytest.mark.parametrize("name", ["crash", "die", "nan"])
def test_its_own_failure_is_no_verdict(verifier, name):
    with pytest.raises(VerifierFailed):
        verifier(name).score(episode(make_task("x"), "y"))


def test_gigabytes_of_prints_are_not_read_and_a_huge_verdict_is_none(verifier):
    rollout = episode(make_task("x"), "y")
    assert verifier("chatty").score(rollout).value == 1.0
    with pytest.raises(VerifierFailed, match="more than 4000000 bytes"):
        verifier("flood").score(rollout)


def test_an_endless_verifier_is_killed(verifier):
    with pytest.raises(VerifierFailed, match=r"within 0.2 s"):
        verifier("spin", deadline_s=0.2).score(episode(make_task("x"), "y"))


def test_not_its_fault_is_a_null(verifier):
    assert verifier("unknown").score(episode(make_task("x"), "y")).value is None


def test_a_file_or_object_that_is_not_there_is_a_sentence(verifier, tmp_path):
    with pytest.raises(UserError, match=r"AttributeError.*gone"):
        verifier("gone")
    with pytest.raises(UserError, match="file does not exist"):
        open_signal(SignalConfig(use=f"{tmp_path}/gone.py:x"))
