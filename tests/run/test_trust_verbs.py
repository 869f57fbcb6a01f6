"""`tradewind trust`, what status and report say of judges."""

from __future__ import annotations

import json
import threading
import time
from contextlib import closing

import pytest
from typer.testing import CliRunner

from tradewind.grader.config import GraderConfig
from tradewind.ledger.ledger import Ledger
from tradewind.ledger.rollouts import LeaseTerms
from tradewind.ledger.trust import Judge
from tradewind.rewards.config import Composition
from tradewind.rewards.trust.config import TrustConfig
from tradewind.rewards.trust.decision import begin, decide
from tradewind.rewards.trust.evidence import Evidence, LabelledVerdict
from tradewind.run.cli import app
from tradewind.run.judged import judge_notes, judged_figures, read_curves
from tradewind.types import Outcome, Score, Step, Task, UserError, WeightVersion
from tradewind.types.trust import LabelSource, Pause, TrustState


@pytest.fixture
def run(tmp_path):
    """A ledger with two graded rollouts, one judge of `tone`, and nothing trained."""
    ledger = Ledger.open(tmp_path / "ledger.sqlite")
    ledger.create_run({"seed": 1})
    ledger.add_tasks([Task(task_id="t", kind="k", split="train", input={}, reference={})])
    base = {"version": 0, "state_id": "s0", "parent_state_id": None, "manifest": "m"}
    ledger.commit_version(WeightVersion(**base, stage="b", bytes_shipped=1, bytes_full=1))
    graded(ledger, 2)
    judge = {"signal": "tone", "version": "v1", "minimum": TrustState.PROBATION, "about": {}}
    ledger.meet_judge(Judge(**judge))
    yield tmp_path, ledger
    ledger.close()


def graded(ledger: Ledger, n: int) -> None:
    """A group of so many rollouts, which the judge likes."""
    ledger.open_training_group(n)
    terms = LeaseTerms(ttl_s=60.0, deadline_s=60.0, max_running=9)
    while (leased := ledger.lease_next("w", 1.0, terms, [0])) is not None:
        ledger.finish(leased.rollout_id, Outcome(status="completed"), 2.0)
        ledger.claim_finished("g", 9, 2.0, 60.0)
        score = {"rollout_id": leased.rollout_id, "source": "tone", "source_version": "v1"}
        ledger.write_scores(leased.rollout_id, [Score(**score, value=1.0)])


def call(*args: str):
    return CliRunner().invoke(app, ["trust", *args], env={"COLUMNS": "240"})


def test_a_run_and_nothing_else_prints_each_judge_and_what_it_lacks(run):
    folder, ledger = run
    ledger.record_standing(decide(begin("tone", "v1", 1.0), Evidence(), TrustConfig(), 2.0))
    said = call(str(folder))
    assert said.exit_code == 0, said.output
    words = " ".join(said.output.split())
    assert "tone: uncalibrated, weight x 0 for probation: 40 labels with yes" in words
    assert "name a verifier in [grader.probes] truth, or label rollouts" in words
    assert "held against: probation_bound 0.7, trusted_bound 0.8, trusted_usable 0.15" in words
    assert "40 labels with yes and 40 with no" in words
    shown = json.loads(call("show", str(folder), "--json").output)
    (judge,) = shown["judges"]
    assert judge["standing"]["state"] == "uncalibrated"
    assert judge["standing"]["thresholds"]["min_labels"] == 40
    assert shown["paused"] is None


def test_what_labels_say_fits_into_a_narrow_terminal(run):
    folder, ledger = run
    said = [("t", float(n % 2), float(n % 2), LabelSource.VERIFIER, 1.0) for n in range(99)]
    labels = [LabelledVerdict(str(n), *one) for n, one in enumerate(said)]
    standing = decide(begin("tone", "v1", 1.0), Evidence(labels=labels), TrustConfig(), 2.0)
    ledger.record_standing(standing)
    said = CliRunner().invoke(app, ["trust", str(folder)], env={"COLUMNS": "80"}).output
    (row,) = [line.split() for line in said.splitlines() if line.strip().startswith("verifier")]
    assert row == ["verifier", "99", "0.49", "1.00", "(0.95)", "1.00", "(0.95)", *["1.00"] * 3]
    assert "name a verifier" not in said


def test_labels_are_imported_once(run, tmp_path):
    folder, ledger = run
    file = tmp_path / "labels.jsonl"
    lines = [
        {"rollout_id": "g000000-r0", "signal": "tone", "rater": "ana", "value": 1},
        {"rollout_id": "g000000-r1", "signal": "tone", "rater": "ana", "value": 0},
    ]
    file.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    assert "2 labels added, 0 were there already" in call("label", str(folder), str(file)).output
    assert "0 labels added, 2 were there already" in call("label", str(folder), str(file)).output
    assert [x.value for x in ledger.labels("tone")] == [1.0, 0.0]


def test_a_queue_is_filled_in_by_a_person_and_read_back(run, tmp_path):
    folder, ledger = run
    graded(ledger, 8)
    (tmp_path / "c.toml").write_text(
        'rubric = "r"\nversion = "1"\n[[criteria]]\nid = "tone"\nquestion = "Is it polite?"\n'
        'evidence = ["answer:reply"]\n'
    )
    signals = [{"name": "tone", "use": "judge", "options": {"criteria": str(tmp_path / "c.toml")}}]
    used = Composition.model_validate({"signals": signals})
    ledger.use_composition(used.version, used.model_dump(mode="json"))
    queue = tmp_path / "queue.jsonl"
    asked = ("sample", str(folder), "--out", str(queue), "--rater", "ana", "--random-share", "1")
    said = call(*asked)
    assert said.exit_code == 0, said.output
    lines = [json.loads(line) for line in queue.read_text().splitlines()]
    assert lines, "some of the ten are in the lower half"
    shown = lines[0]["show"]
    assert shown["question"] == "Is it polite?" and shown["evidence"] == {"reply": ""}
    assert shown["value"] == "1 if it is good (yes), 0 if not (no)"
    assert "1.0" not in json.dumps(lines), "the judge's verdict is not told"
    untouched = call("label", str(folder), str(queue)).output
    assert f"0 labels added, 0 were there already, {len(lines)} lines have no value" in untouched
    assert "somebody may have labelled" in str(call(*asked).exception)
    queue.write_text("\n".join(json.dumps({**line, "value": 1}) for line in lines))
    assert f"{len(lines)} labels added" in call("label", str(folder), str(queue)).output
    assert {x.rater for x in ledger.labels("tone")} == {"ana"}
    queue.unlink()
    assert "nothing more to label" in call(*asked).output


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("{}", "line 1 is no label"),
        ("[1]", "not a JSON object"),
        ("nonsense", "line 1 is no label"),
        ('{"rollout_id": "g0", "signal": "tone", "rater": "a", "value": 7}', "value"),
        ('{"rollout_id": "g0", "signal": "tone", "rater": "a", "value": 1}', "does not have"),
        ('{"rollout_id": "g000000-r0", "signal": "x", "rater": "a", "value": 1}', "no judge"),
    ],
)
def test_a_wrong_line_is_a_sentence_and_nothing_is_imported(run, tmp_path, line, fault):
    folder, ledger = run
    file = tmp_path / "labels.jsonl"
    file.write_text(line)
    said = call("label", str(folder), str(file))
    assert isinstance(said.exception, UserError) and fault in str(said.exception)
    assert ledger.labels("tone") == []


def test_a_pause_is_shown_and_ended(run):
    folder, ledger = run
    ledger.pause_training(Pause(alarm="nulls", cause="31 of 100 were null", at=3.0, pools=7))
    shown = " ".join(call(str(folder)).output.split())
    assert "training is paused" in shown and "pools go back to version 7" in shown
    assert "it was paused by the alarm 'nulls'" in call("resume", str(folder)).output
    assert ledger.paused() is None
    assert "not paused" in call("resume", str(folder)).output


class Trainer(threading.Thread):
    """Heeds one order as the real one does, without weights."""

    def __init__(self, folder, refuses: str | None = None) -> None:
        super().__init__(daemon=True)
        self._folder, self._refuses = folder, refuses

    def run(self) -> None:
        with closing(Ledger.open(self._folder / "ledger.sqlite")) as ledger:
            deadline = time.monotonic() + 60
            while (order := ledger.return_order()) is None:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            if self._refuses is not None:
                ledger.refuse_return(order, self._refuses)
                return
            ledger.commit_return(order, version(2, f"s{order.back_to}", "return"))


def version(number: int, state: str, stage: str = "rl") -> WeightVersion:
    fields = {"parent_state_id": f"s{number - 1}", "manifest": "m", "stage": stage}
    sizes = {"bytes_shipped": 1, "bytes_full": 1}
    return WeightVersion(version=number, state_id=state, **fields, **sizes)


def test_a_person_takes_the_trainer_back_and_sees_it_arrive(run):
    folder, ledger = run
    ledger.commit_version(version(1, "s1"))
    assert "training stands still" in call("pause", str(folder), "--why", "odd answers").output
    assert "paused by a person: odd answers" in call(str(folder)).output
    assert "was paused already" in call("pause", str(folder)).output
    trainer = Trainer(folder)
    trainer.start()
    said = call("return", str(folder), "0", "--why", "it cheats")
    trainer.join()
    assert said.exit_code == 0, said.output
    assert "went back to version 0 as version 2, version 1 is withdrawn" in said.output
    assert "it cheats; 0 pools serve it already" in said.output
    assert f"until: tradewind trust resume {folder}" in said.output
    assert "it was paused by a person" in call("resume", str(folder)).output


def test_a_return_that_cannot_be_is_a_sentence(run):
    folder, ledger = run
    assert "to which version?" in str(call("return", str(folder)).exception)
    assert "no such version" in str(call("return", str(folder), "0").exception)
    ledger.commit_version(version(1, "s1"))
    trainer = Trainer(folder, refuses="its frames are gone")
    trainer.start()
    assert "its frames are gone" in str(call("return", str(folder), "0").exception)
    trainer.join()
    late = call("return", str(folder), "0", "--wait", "0").exception
    assert "has never been heard of; the order stands" in str(late)
    assert ledger.return_order() is not None


def test_where_an_alarm_has_sent_the_pools_is_where_the_trainer_goes(run):
    folder, ledger = run
    ledger.commit_version(version(1, "s1"))
    ledger.pause_training(Pause(alarm="judged", cause="tone was fooled", at=3.0, pools=0))
    trainer = Trainer(folder)
    trainer.start()
    assert "went back to version 0" in call("return", str(folder)).output
    trainer.join()


def test_a_run_whose_steps_are_done_is_not_taken_back(run):
    folder, ledger = run
    made = version(1, "s1")
    empty = {"group_ids": (), "metrics": {}, "seconds": 1.0, "committed_at": 1.0}
    ledger.commit_step(Step(step=0, version=1, **empty), made)
    ledger.set_meta("training_steps", 1)
    said = str(call("return", str(folder), "0").exception)
    assert "all steps of this run are done" in said and "tradewind weights export" in said
    assert ledger.return_order() is None and ledger.paused() is None


def test_there_must_be_a_run(tmp_path):
    said = call(str(tmp_path / "nowhere"))
    assert isinstance(said.exception, UserError) and "no ledger here" in str(said.exception)


def test_the_report_has_a_curve_only_of_judges_that_were_trained_with(run):
    _, ledger = run
    assert read_curves(ledger) == {}
    figures = judged_figures(ledger, {})
    assert figures["judged.tone"] == {"state": "unknown", "factor": 0.0, "faults": []}


def told(truth: dict[str, str], role: str = "weighted") -> list[str]:
    signals = [
        {"name": "rows", "use": "exact", "role": role},
        {"name": "tone", "use": "judge"},
        {"name": "watched", "use": "judge", "role": "monitor"},
    ]
    config = {"signals": signals, "probes": {"truth": truth}}
    return judge_notes(GraderConfig.model_validate(config))


def test_a_run_says_at_its_start_how_a_judge_comes_to_its_weight():
    (alone,) = told({})
    assert "tone is judged: weight 0 at first" in alone and "tradewind trust label" in alone
    (with_truth,) = told({"tone": "rows"})
    assert with_truth.endswith("which grows by the verdicts of rows")
    (behind,) = told({"tone": "rows"}, role="gate")
    assert "a closed gate asks no judge, so give rows another role" in behind
    _, nothing_else = told({"tone": "rows"}, role="monitor")
    assert "no group is trained before one is trusted" in nothing_else
