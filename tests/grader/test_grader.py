"""The grader against a real ledger; the verifier is real or fails on purpose."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from common.scripted_judge import Fault, ScriptedJudge
from common.turns import answered

from tradewind.algo.advantages import group_mean
from tradewind.grader.config import GraderConfig
from tradewind.grader.grading import grade
from tradewind.grader.main import Grader, main
from tradewind.ledger.ledger import Ledger
from tradewind.ledger.rollouts import LeaseTerms
from tradewind.ledger.scores import FinishedRollout
from tradewind.rewards.compose import compose
from tradewind.rewards.config import Composition, SignalConfig
from tradewind.rewards.panel import Panel
from tradewind.rewards.sandbox.measure import measure
from tradewind.rewards.signal import Kind, Verdict, VerifierFailed
from tradewind.types import Outcome, Task

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
    return answer(ledger, rollout, outcome)


def answer(ledger: Ledger, rollout: str, outcome: Outcome) -> str:
    """One answered turn and the end."""
    answered(ledger, rollout, at=100.0)
    ledger.finish(rollout, outcome, 101.0)
    return rollout


def rows(workspace: Path, **fields) -> dict:
    """The signal that compares result sets on the workspace's shop."""
    return {"name": "rows", "options": {"database": str(workspace / "shop.sqlite")}, **fields}


@pytest.fixture
def grader(workspace: Path):
    ledger = Ledger.open(workspace / "ledger.sqlite")
    opened = Grader(GraderConfig(signals=[rows(workspace)]), ledger)
    yield opened
    opened.close()
    ledger.close()


@pytest.mark.parametrize(
    "outcome,value,cause",
    [
        (Outcome(status="completed", artefacts={"sql": "select 2"}), 1.0, None),
        (Outcome(status="completed", artefacts={"sql": "select 3"}), 0.0, "differ"),
        (Outcome(status="completed"), 0.0, "no 'sql'"),
        (Outcome(status="agent_limit", artefacts={"sql": "select 2"}), 1.0, None),
        (Outcome(status="agent_error", detail="KeyError"), 0.0, "no 'sql'"),
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
    assert (score.source, score.source_version) == ("rows", "1")


class Flaky:
    version, kind, needs_turns = "1", Kind.CHECK, False

    def __init__(self, failures: int) -> None:
        self.left = failures

    def score(self, episode) -> Verdict:
        self.left -= 1
        if self.left >= 0:
            raise VerifierFailed("it crashed")
        return Verdict(value=1.0)


def panel(*signals: tuple[SignalConfig, object]) -> Panel:
    """Signals that are made here instead of opened."""
    made = Panel.__new__(Panel)
    made.composition = Composition(signals=[config for config, _ in signals])
    made.signals = list(signals)
    return made


def grade_flaky(failures: int, claims: int = 1):
    outcome = Outcome(status="completed", artefacts={"sql": "select 2"})
    finished = FinishedRollout("g000000-r0", make_task(), outcome, None, claims, 0.0)
    (score,) = grade(finished, panel((SignalConfig(name="flaky"), Flaky(failures))), attempts=3)
    return score


def test_a_verifier_that_fails_is_tried_again_and_null_only_in_the_end():
    assert grade_flaky(2).value == 1.0
    score = grade_flaky(3)
    assert score.value is None and score.cause == "grader_error: failed 3 times, it crashed"


def test_a_rollout_on_which_graders_keep_dying_becomes_null():
    assert grade_flaky(0, claims=3).value == 1.0
    score = grade_flaky(0, claims=4)
    assert score.value is None and "grader_error: 3 graders" in score.cause


def test_no_judge_is_asked_once_a_gate_is_closed():
    outcome = Outcome(status="completed")
    finished = FinishedRollout("g000000-r0", make_task(), outcome, None, 1, 0.0)
    gate = SignalConfig(name="gate", role="gate", bar=2.0)
    judge = SignalConfig(name="tone", use="judge")
    scores = grade(finished, panel((gate, Flaky(0)), (judge, Flaky(99))), attempts=3)
    assert [score.source for score in scores] == ["gate"]
    opened = SignalConfig(name="gate", role="gate")
    scores = grade(finished, panel((opened, Flaky(0)), (judge, Flaky(99))), attempts=3)
    assert [(s.source, s.value) for s in scores] == [("gate", 1.0), ("tone", None)]


def test_a_component_added_while_a_run_goes_begins_with_a_whole_group(grader, workspace):
    """A group that has begun keeps its composition; the next one has the new component."""
    (workspace / "mine.py").write_text("def short(task, outcome): return 0.25\n")
    ledger, good = grader._ledger, Outcome(status="completed", artefacts={"sql": "select 2"})
    begun = ledger.open_training_group(2)
    leased = [ledger.lease_next("w", 100.0, TERMS, ()).rollout_id for _ in range(2)]
    with ThreadPoolExecutor(2) as threads:
        answer(ledger, leased[0], good)
        assert grader.grade_some(threads) == 1
        added = Composition(
            signals=[
                rows(workspace),
                {"name": "short", "use": f"{workspace}/mine.py:short", "role": "penalty"},
            ]
        )
        assert ledger.use_composition(added.version, added.model_dump(mode="json"))
        answer(ledger, leased[1], good)
        later = play(ledger, good)
        assert grader.grade_some(threads) == 2
    found = [{s.source: s.value for s in ledger.scores(r)} for r in (*leased, later)]
    assert found == [{"rows": 1.0}, {"rows": 1.0}, {"rows": 1.0, "short": 0.25}]
    closed = ledger.close_ready(compose, group_mean)
    assert closed == [begun.group_id, later.partition("-")[0]]
    rewards = [r.reward for g in ledger.claimable(2, 0, 0) for r in g.rollouts]
    assert rewards == [1.0, 1.0, 0.75]
    assert ledger.audit_report(compose).sound
    restarted = Grader(GraderConfig(signals=[rows(workspace)]), ledger)
    restarted.close()
    assert ledger.composition()[0] == added.version, "a restart does not undo what was added"


def test_a_lost_payload_of_one_rollout_does_not_end_the_grader(workspace):
    """A signal that looks at turns cannot read them: null, and the others are graded."""
    ledger, good = (
        Ledger.open(workspace / "ledger.sqlite"),
        Outcome(status="completed", artefacts={"sql": "select 2"}),
    )
    lost = play(ledger, good)
    for payload in (workspace / "ledger.payloads").rglob("*"):
        if payload.is_file():
            payload.write_bytes(b"damaged")
    whole = play(ledger, good.model_copy(update={"artefacts": {"sql": "select 3"}}))
    signals = [rows(workspace), {"use": "effort", "role": "penalty", "weight": 0.1}]
    opened = Grader(GraderConfig.model_validate({"signals": signals}), ledger)
    with ThreadPoolExecutor(2) as threads:
        assert opened.grade_some(threads) == 2
    causes = [score.cause for score in ledger.scores(lost)]
    assert len(causes) == 2
    assert all(cause.startswith(f"infra_error: turn {lost}-t0: payload") for cause in causes)
    assert ledger.scores(whole)[1].value == 0.0
    assert ledger.refill(max_refills=3) == 1, "another rollout takes its place"
    opened.close()
    ledger.close()


def test_a_store_that_is_away_ends_the_grader_with_a_sentence(workspace, capsys, monkeypatch):
    ledger = Ledger.open(workspace / "ledger.sqlite")
    play(ledger, Outcome(status="completed", artefacts={"sql": "select 2"}))
    ledger.close()
    config = workspace / "grader.json"
    signals = [rows(workspace), {"use": "effort", "role": "penalty", "weight": 0.1}]
    config.write_text(json.dumps({"signals": signals}))
    (workspace / "ledger.payloads").rename(workspace / "elsewhere")
    (workspace / "ledger.payloads").write_text("no folder")
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # pytest keeps its own
    assert main(["--config", str(config), "--workspace", str(workspace)]) == 1
    assert "token payloads cannot be read" in capsys.readouterr().err


def test_wrong_input_is_one_sentence_and_exit_status_2(workspace, capsys):
    assert main(["--workspace", str(workspace)]) == 2
    assert "set options.database" in capsys.readouterr().err
    (workspace / "grader.toml").write_text("signal = []")
    assert main(["--config", str(workspace / "grader.toml"), "--workspace", str(workspace)]) == 2
    assert "signal = []" in capsys.readouterr().err
    ledger = Ledger.open(workspace / "ledger.sqlite")
    ledger.add_tasks([make_task(1, "select wrong")])
    ledger.close()
    (workspace / "grader.toml").write_text(
        f"signals = [{{options = {{database = '{workspace / 'shop.sqlite'}'}}}}]"
    )
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
    config.write_text(json.dumps({"signals": [rows(workspace)], "poll_s": 0.01}))
    process = subprocess.Popen(
        [sys.executable, "-m", "tradewind.grader", "--config", config, "--workspace", workspace],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    lines = []
    while sum("-r0 rows 1" in line for line in lines) < 3:
        lines.append(process.stderr.readline())
        assert lines[-1], "".join(lines)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 0
    process.stderr.close()
    assert f"isolation {measure()}" in lines[0]
    assert [ledger.scores(r)[0].value for r in rollouts] == [1.0, 1.0, 1.0]
    assert ledger.beats()[0].process == "grader"
    ledger.close()


class Waits:
    """Grades at once, but for a query that says "slow": that waits to be let go."""

    version, kind, needs_turns = "1", Kind.JUDGED, False

    def __init__(self) -> None:
        self.reached, self.let_go = threading.Event(), threading.Event()

    def score(self, episode) -> Verdict:
        if episode.outcome.artefacts["sql"] == "slow":
            self.reached.set()
            assert self.let_go.wait(60)
        return Verdict(value=1.0)

    def close(self) -> None:
        pass


def test_a_slow_judge_holds_its_own_slot_and_nobody_elses(grader):
    signal = Waits()
    version = grader._config.composition.version
    for opened in grader._panels[version]:
        opened.close()
    grader._panels[version] = [panel((SignalConfig(name="waits"), signal)) for _ in range(2)]
    ledger = grader._ledger
    slow = play(ledger, Outcome(status="completed", artefacts={"sql": "slow"}))
    with ThreadPoolExecutor(2) as threads:
        try:
            assert grader.start_some(threads) == 1
            assert signal.reached.wait(60)
            for _ in range(5):
                quick = play(ledger, Outcome(status="completed", artefacts={"sql": "quick"}))
                assert grader.start_some(threads) == 1
                grader.settle(60)
                assert ledger.scores(quick)[0].value == 1.0
            assert not ledger.scores(slow)
        finally:
            signal.let_go.set()
        grader.settle(60)
    assert ledger.scores(slow)[0].value == 1.0


def test_a_claim_is_held_as_long_as_its_grader_works(workspace):
    ledger = Ledger.open(workspace / "ledger.sqlite")
    rollout = play(ledger, Outcome(status="completed"))
    (mine,) = ledger.claim_finished("a", 1, now=100.0, ttl_s=10.0)
    ledger.hold_claims("a", [rollout], until=200.0)
    assert ledger.claim_finished("b", 1, now=150.0, ttl_s=10.0) == []
    ledger.hold_claims("b", [rollout], until=900.0)
    (theirs,) = ledger.claim_finished("b", 1, now=201.0, ttl_s=10.0)
    assert (mine.claims, theirs.claims) == (1, 2)
    ledger.hold_claims("a", [rollout], until=900.0)
    assert ledger.claim_finished("c", 1, now=300.0, ttl_s=10.0), "what was lost stays lost"
    ledger.close()


def test_a_judge_that_is_refused_becomes_one_event_and_nulls(workspace):
    (workspace / "c.toml").write_text(
        'rubric = "r"\nversion = "1"\n[[criteria]]\nid = "c"\nquestion = "Is it so?"\n'
        'evidence = "answer:sql"\n'
    )
    ledger = Ledger.open(workspace / "ledger.sqlite")
    with ScriptedJudge(lambda *_: Fault(status=401)) as judge:
        options = {"criteria": str(workspace / "c.toml"), "url": judge.url, "model": "m"}
        signals = [rows(workspace), {"name": "c", "use": "judge", "options": options}]
        grader = Grader(GraderConfig(signals=signals), ledger)
        with ThreadPoolExecutor(2) as threads:
            done = [
                play(ledger, Outcome(status="completed", artefacts={"sql": f"select {n}"}))
                for n in (2, 3)
            ]
            assert grader.grade_some(threads) == 2
        grader.close()
    for rollout in done:
        found = {score.source: score for score in ledger.scores(rollout)}
        assert found["rows"].value is not None
        assert found["c"].value is None and found["c"].cause.startswith("judge_refused")
    (event,) = [event for event in ledger.events() if event.kind == "signal.alarmed"]
    assert (event.process, event.subject) == ("grader", "c") and "401" in event.detail
    ledger.close()


class Together:
    """Gives a verdict only if as many are asked at the same time."""

    version, kind, needs_turns = "1", Kind.JUDGED, False

    def __init__(self, barrier: threading.Barrier) -> None:
        self.barrier = barrier

    def score(self, episode) -> Verdict:
        return Verdict(value=float(self.barrier.wait(30) >= 0))


def test_judges_of_one_rollout_are_asked_at_the_same_time():
    finished = FinishedRollout("g000000-r0", make_task(), Outcome(status="completed"), None, 1, 0.0)
    barrier = threading.Barrier(3)
    names = ("a", "b", "c")
    judges = [(SignalConfig(name=n, use="judge"), Together(barrier)) for n in names]
    scores = grade(finished, panel(*judges), attempts=1)
    assert [(score.source, score.value) for score in scores] == [(n, 1.0) for n in names]


def test_a_judged_gate_stops_no_other_judge():
    """Whether it counts is not known before its judge is trusted."""
    finished = FinishedRollout("g000000-r0", make_task(), Outcome(status="completed"), None, 1, 0.0)
    gate = SignalConfig(name="gate", use="judge", role="gate", bar=2.0)
    judge = SignalConfig(name="tone", use="judge")
    scores = grade(finished, panel((gate, Flaky(0)), (judge, Flaky(0))), attempts=1)
    assert [(score.source, score.value) for score in scores] == [("gate", 1.0), ("tone", 1.0)]
