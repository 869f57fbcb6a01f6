"""A verifier out of somebody's file."""

from __future__ import annotations

import re

import pytest

from tradewind.rewards.config import RewardConfig
from tradewind.rewards.registry import check_tasks, open_reward
from tradewind.rewards.reward import VerifierFailed
from tradewind.types import Outcome, Task, UserError


def make_task(sql: object, *, ordered: bool = False, number: int = 0) -> Task:
    reference = {"ordered": ordered} if sql is None else {"sql": sql, "ordered": ordered}
    return Task(
        task_id=f"t-{number:04d}",
        kind="k",
        split="train",
        input={"question": "?"},
        reference=reference,
    )


def make_outcome(sql: object) -> Outcome:
    return Outcome(status="completed", artefacts={"sql": sql})


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

def unknown(task, outcome):
    return None

class Strict:
    name, version = "strict", "3"

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
        opened.append(open_reward(RewardConfig(reward=entry, deadline_s=deadline_s)))
        return opened[-1]

    yield open_it
    for reward in opened:
        reward.close()


def test_a_function_is_enough_and_its_prints_do_no_harm(verifier):
    half = verifier("half")
    assert half.name == "half"
    assert re.fullmatch("[0-9a-f]{12}", half.version), "of its code, if it names none"
    assert half.score(make_task("x"), make_outcome("y")).value == 0.5
    assert half.score(make_task("x"), make_outcome("y")).value == 0.5


def test_an_object_has_name_version_and_admission(verifier):
    strict = verifier("strict")
    assert (strict.name, strict.version) == ("strict", "3")
    assert strict.score(make_task("x"), make_outcome("x")).value == 1.0
    with pytest.raises(UserError, match="t-0000: no sql"):
        check_tasks(strict, [make_task(None)])


@pytest.mark.parametrize("name", ["crash", "die", "nan"])
def test_its_own_failure_is_no_verdict(verifier, name):
    with pytest.raises(VerifierFailed):
        verifier(name).score(make_task("x"), make_outcome("y"))


def test_an_endless_verifier_is_killed(verifier):
    with pytest.raises(VerifierFailed, match="in time"):
        verifier("spin", deadline_s=0.5).score(make_task("x"), make_outcome("y"))


def test_not_its_fault_is_a_null(verifier):
    assert verifier("unknown").score(make_task("x"), make_outcome("y")).value is None


def test_a_file_or_object_that_is_not_there_is_a_sentence(verifier, tmp_path):
    with pytest.raises(UserError, match=r"AttributeError.*gone"):
        verifier("gone")
    with pytest.raises(UserError, match="file does not exist"):
        open_reward(RewardConfig(reward=f"{tmp_path}/gone.py:x"))
