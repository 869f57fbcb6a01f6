"""The grader against a real ledger; the verifier is real or fails on purpose."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tradewind.grader.config import GraderConfig
from tradewind.grader.grading import grade
from tradewind.grader.main import Grader, main
from tradewind.ledger.ledger import Ledger
from tradewind.ledger.rollouts import LeaseTerms
from tradewind.ledger.scores import FinishedRollout
from tradewind.rewards.reward import Verdict, VerifierFailed
from tradewind.types import Completion, Outcome, Task, Turn, TurnState, VersionSpan, turn_id

TERMS = LeaseTerms(ttl_s=1e6, deadline_s=1e6, max_running=100)


def make_task(number: int = 0, sql: str = "select count(*) from orders") -> Task:
    return Task(
        task_id=f"t-{number}",
        kind="k",
        split="train",
        input={"question": "?"},
        reference={"sql": sql},
    )


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / "shop.sqlite")) as connection:
        connection.executescript("create table orders (a); insert into orders values (1), (2);")
    ledger = Ledger.open(tmp_path / "ledger.sqlite")
    ledger.create_run({"seed": 1})
    ledger.add_tasks([make_task()])
    ledger.close()
    return tmp_path


def play(ledger: Ledger, outcome: Outcome) -> str:
    """A finished rollout with one answered turn."""
    ledger.open_training_group(1)
    rollout = ledger.lease_next("w", 100.0, TERMS, ()).rollout_id
    intent = Turn(
        turn_id=turn_id(rollout, 0),
        rollout_id=rollout,
        index=0,
        parent=None,
        state="intent",
        prompt_ids=(1,),
        completion=None,
        temperature=1.0,
        messages=(),
        started_at=100.0,
    )
    ledger.write_intent(intent)
    done = Completion(
        output_ids=(2,),
        logprobs=(-0.1,),
        spans=(VersionSpan(version=0, count=1),),
        finish_reason="stop",
        pool="p",
    )
    ledger.finish_turn(
        intent.model_copy(
            update={"state": TurnState.DONE, "completion": done, "finished_at": 101.0}
        )
    )
    ledger.finish(rollout, outcome, 101.0)
    return rollout


@pytest.fixture
def grader(workspace: Path):
    ledger = Ledger.open(workspace / "ledger.sqlite")
    opened = Grader(GraderConfig(database=workspace / "shop.sqlite"), ledger)
    yield opened
    opened.close()
    ledger.close()


@pytest.mark.parametrize(
    "outcome,value,cause",
    [
        (Outcome(status="completed", artefacts={"sql": "select 2"}), 1.0, None),
        (Outcome(status="completed", artefacts={"sql": "select 3"}), 0.0, "differ"),
        (Outcome(status="completed"), 0.0, "no SQL"),
        (Outcome(status="agent_limit", artefacts={"sql": "select 2"}), 1.0, None),
        (Outcome(status="agent_error", detail="KeyError"), 0.0, "no SQL"),
        (Outcome(status="env_error", detail="database is down"), None, "database is down"),
        (Outcome(status="infra_error", detail="gateway gone"), None, "infra_error: gateway gone"),
    ],
)
def test_what_the_policy_causes_is_graded_and_only_the_rest_is_null(grader, outcome, value, cause):
    rollout = play(grader._ledger, outcome)
    with ThreadPoolExecutor(2) as threads:
        assert grader.grade_some(threads) == 1
        assert grader.grade_some(threads) == 0
    (score,) = grader._ledger.scores(rollout)
    assert score.value == value
    assert (score.cause is None) if cause is None else (cause in score.cause)
    assert (score.source, score.source_version) == ("resultset", "1")


class Flaky:
    name, version = "flaky", "1"

    def __init__(self, failures: int) -> None:
        self.left = failures

    def score(self, task, outcome) -> Verdict:
        self.left -= 1
        if self.left >= 0:
            raise VerifierFailed("it crashed")
        return Verdict(value=1.0)


def finished(claims: int = 1) -> FinishedRollout:
    outcome = Outcome(status="completed", artefacts={"sql": "select 2"})
    return FinishedRollout("g000000-r0", make_task(), outcome, claims)


def test_a_verifier_that_fails_is_tried_again_and_null_only_in_the_end():
    assert grade(finished(), Flaky(2), attempts=3).value == 1.0
    score = grade(finished(), Flaky(3), attempts=3)
    assert score.value is None and score.cause == "grader_error: failed 3 times, it crashed"


def test_a_rollout_on_which_graders_keep_dying_becomes_null():
    assert grade(finished(claims=3), Flaky(0), attempts=3).value == 1.0
    score = grade(finished(claims=4), Flaky(0), attempts=3)
    assert score.value is None and "grader_error: 3 graders" in score.cause


def test_wrong_input_is_one_sentence_and_exit_status_2(workspace, capsys):
    assert main(["--workspace", str(workspace)]) == 2
    assert "set [grader] database" in capsys.readouterr().err
    (workspace / "grader.toml").write_text("databse = 'x'")
    assert main(["--config", str(workspace / "grader.toml"), "--workspace", str(workspace)]) == 2
    assert "databse" in capsys.readouterr().err
    ledger = Ledger.open(workspace / "ledger.sqlite")
    ledger.add_tasks([make_task(1, "select wrong")])
    ledger.close()
    (workspace / "grader.toml").write_text(f"database = '{workspace / 'shop.sqlite'}'")
    assert main(["--config", str(workspace / "grader.toml"), "--workspace", str(workspace)]) == 2
    assert "cannot score task t-1" in capsys.readouterr().err


def test_a_process_grades_is_killed_and_its_successor_goes_on(workspace):
    """kill -9 while claims are held; a second process grades everything after they run out."""
    ledger = Ledger.open(workspace / "ledger.sqlite")
    good = Outcome(status="completed", artefacts={"sql": "select 2"})
    rollouts = [play(ledger, good) for _ in range(3)]
    held = ledger.claim_finished("killed grader", 3, 0.0, 1.0)
    assert len(held) == 3
    config = workspace / "grader.json"
    config.write_text(f'{{"database": "{workspace / "shop.sqlite"}", "poll_s": 0.01}}')
    process = subprocess.Popen(
        [sys.executable, "-m", "tradewind.grader", "--config", config, "--workspace", workspace],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    lines = []
    while sum("-r0 1" in line for line in lines) < 3:
        lines.append(process.stderr.readline())
        assert lines[-1], "".join(lines)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 0
    process.stderr.close()
    assert "isolation L1" in lines[0]
    assert [ledger.scores(r)[0].value for r in rollouts] == [1.0, 1.0, 1.0]
    assert ledger.beats()[0].process == "grader"
    ledger.close()
