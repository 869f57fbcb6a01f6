"""`tradewind rewards`: another reward while a run goes, and what became of each component."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from common.turns import answered

from tradewind.algo.advantages import group_mean
from tradewind.ledger.ledger import Ledger
from tradewind.ledger.rollouts import LeaseTerms
from tradewind.rewards.compose import compose
from tradewind.rewards.config import Composition
from tradewind.run.charts import components_chart
from tradewind.run.cli import app
from tradewind.run.components import changes, read_components
from tradewind.types import (
    Outcome,
    Score,
    Step,
    Task,
    UserError,
    WeightVersion,
)
from tradewind.types.trust import Standing

TERMS = LeaseTerms(ttl_s=1e6, deadline_s=1e6, max_running=100)
FIRST = {"signals": [{"name": "right", "use": "mine.py:score"}]}
SECOND = """
[[signals]]
name = "right"
use = "mine.py:score"
[[signals]]
name = "work"
use = "effort"
role = "penalty"
weight = 0.1
[[signals]]
name = "exploits"
use = "exploits"
role = "monitor"
options = { rules = "rules.toml" }
"""


@pytest.fixture
def ledger(tmp_path: Path):
    (tmp_path / "mine.py").write_text("def score(task, outcome):\n    return 1.0\n")
    (tmp_path / "rules.toml").write_text(
        "version = 'ours'\nrules = [{ name = 'a', class = 'b', on = ['run'], pattern = '^a' }]\n"
    )
    (tmp_path / "reward.toml").write_text(SECOND)
    opened = Ledger.open(tmp_path / "ledger.sqlite")
    opened.create_run({"seed": 1})
    opened.add_tasks(
        [Task(task_id=f"t{n}", kind="k", split="train", input={}, reference={}) for n in (0, 1)]
    )
    opened.commit_version(version(0))
    first = Composition.model_validate(FIRST)
    opened.use_composition(first.version, first.model_dump(mode="json"))
    yield opened
    opened.close()


def version(number: int) -> WeightVersion:
    return WeightVersion(
        version=number,
        state_id=f"s{number}",
        parent_state_id=f"s{number - 1}" if number else None,
        manifest="m",
        stage="rl" if number else "base",
        bytes_shipped=1,
        bytes_full=1,
    )


def claim(ledger: Ledger) -> str:
    """Lease, answer, finish and claim one rollout; the version of its group's composition."""
    rollout = ledger.lease_next("w", 100.0, TERMS, ()).rollout_id
    answered(ledger, rollout)
    ledger.finish(rollout, Outcome(status="completed"), 3.0)
    (claimed,) = ledger.claim_finished("g", 1, time.time(), 600.0)
    return claimed.composition


def grade(ledger: Ledger, rollout: str, **values: float) -> None:
    new = [
        Score(rollout_id=rollout, source=name, source_version="1", value=value)
        for name, value in values.items()
    ]
    ledger.write_scores(rollout, new)


def train(ledger: Ledger, number: int) -> None:
    ledger.close_ready(compose, group_mean)
    (group,) = ledger.claimable(1, number, 9)
    step = Step(
        step=number,
        version=number + 1,
        group_ids=(group.group.group_id,),
        metrics={},
        seconds=1.0,
        committed_at=float(number),
    )
    ledger.commit_step(step, version(number + 1))


def use(tmp_path: Path, file: str = "reward.toml"):
    args = ["rewards", "use", str(tmp_path), str(tmp_path / file)]
    return CliRunner().invoke(app, args, catch_exceptions=False)


def test_a_component_that_is_added_begins_with_a_whole_group_and_is_logged_apart(ledger, tmp_path):
    for _ in range(2):
        ledger.open_training_group(2)
    first = claim(ledger)
    said = use(tmp_path)
    assert said.exit_code == 0, said.output
    assert "right, work, exploits (from the next group on)" in said.output
    assert claim(ledger) == first, "a group that has begun keeps its reward"
    second = [claim(ledger), claim(ledger)]
    assert second[0] == second[1] != first
    for rollout, value in (("g000000-r0", 1.0), ("g000000-r1", 0.0)):
        grade(ledger, rollout, right=value)
    train(ledger, 0)
    for rollout, value in (("g000001-r0", 1.0), ("g000001-r1", 0.5)):
        grade(ledger, rollout, right=value, work=2.0 * value, exploits=0.0)
    train(ledger, 1)
    with ledger.read() as conn:
        readings = read_components(conn)
    assert [(r.step, r.name, r.mean, r.adds) for r in readings] == [
        (0, "right", 0.5, 0.5),
        (1, "right", 0.75, 0.75),
        (1, "work", 1.5, pytest.approx(-0.15)),
        (1, "exploits", 0.0, None),
    ]
    assert changes(readings) == [1]
    assert "reward changed" in components_chart(readings)
    assert ledger.audit_report(compose).violations == ()
    shown = CliRunner().invoke(app, ["rewards", "show", str(tmp_path)])
    assert f"now {second[0]}" in shown.output
    as_json = CliRunner().invoke(app, ["rewards", "show", str(tmp_path), "--json"])
    assert json.loads(as_json.output) == [r.model_dump() for r in readings]


@pytest.mark.parametrize(
    "state,factor,right,tone",
    [
        ("uncalibrated", 0.0, 0.5, 0.0),
        ("probation", 0.5, 1 / 3, 1 / 3),
        ("trusted", 1.0, 0.25, 0.5),
    ],
)
def test_a_judge_without_trust_is_not_shown_as_if_it_had_added_to_the_reward(
    ledger, state, factor, right, tone
):
    signals = [{"name": "right", "use": "mine.py:score"}, {"name": "tone", "use": "judge"}]
    used = Composition.model_validate({"signals": signals})
    ledger.use_composition(used.version, used.model_dump(mode="json"))
    said = {"signal": "tone", "version": "1", "state": state, "factor": factor}
    ledger.record_standing(Standing(**said, reasons=("so",), at=1.0))
    ledger.open_training_group(2)
    for index, value in enumerate((1.0, 0.0)):
        claim(ledger)
        grade(ledger, f"g000000-r{index}", right=value, tone=1.0)
    ledger.close_ready(compose, group_mean, ledger.factors_by_version())
    train(ledger, 0)
    with ledger.read() as conn:
        readings = read_components(conn)
    assert [(r.name, r.mean, r.adds) for r in readings] == [
        ("right", 0.5, pytest.approx(right)),
        ("tone", 1.0, pytest.approx(tone)),
    ]
    assert ledger.audit_report(compose).violations == ()


def test_files_that_a_reward_names_are_found_from_wherever_the_grader_works(ledger, tmp_path):
    assert use(tmp_path).exit_code == 0
    signals = {s["name"]: s for s in ledger.composition()[1]["signals"]}
    assert signals["right"]["use"] == f"{tmp_path / 'mine.py'}:score"
    assert signals["exploits"]["options"]["rules"] == str(tmp_path / "rules.toml")
    assert "it is in use already" in use(tmp_path).output


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ('[[signals]]\nuse = "efort"', "uses something that does not exist"),
        ('[[signals]]\nuse = "gone.py:score"', "file does not exist"),
        ('[[signals]]\nuse = "effort"\noptions = { kk = 1 }', "options of signal 'effort'"),
        ('[[signals]]\nuse = "effort"\nrole = "penalty"', "nothing would be rewarded"),
    ],
)
def test_a_reward_that_cannot_work_is_refused_and_the_run_keeps_its_own(
    ledger, tmp_path, file, said
):
    before = ledger.composition()
    (tmp_path / "wrong.toml").write_text(file)
    with pytest.raises(UserError, match=said):
        use(tmp_path, "wrong.toml")
    assert ledger.composition() == before


def test_a_folder_that_is_no_run_is_a_sentence(tmp_path):
    (tmp_path / "reward.toml").write_text(SECOND)
    for arguments in (["show"], ["monitor"], ["restore"]):
        with pytest.raises(UserError, match="no ledger here"):
            CliRunner().invoke(
                app, ["rewards", *arguments, str(tmp_path / "no")], catch_exceptions=False
            )


def test_the_self_test_prints_counts_with_intervals():
    said = CliRunner().invoke(app, ["rewards", "monitor", "--self-test", "--json"])
    rows = {(row["class"], row["style"]): row for row in json.loads(said.output)}
    whole = rows["all exploits", "all"]
    assert whole["n"] == sum(
        row["n"] for (name, _), row in rows.items() if name != "innocent" and "all " not in name
    )
    low, high = whole["suspected_interval"]
    assert low < whole["suspected"] / whole["n"] < high < 1.0
    with pytest.raises(UserError, match="either RUN or --self-test"):
        CliRunner().invoke(app, ["rewards", "monitor"], catch_exceptions=False)


def test_what_was_caught_in_a_run_is_listed_and_its_task_restored(ledger, tmp_path):
    wired = Composition.model_validate(
        {"signals": [*FIRST["signals"], {"use": "exploits", "role": "tripwire"}]}
    )
    ledger.use_composition(wired.version, wired.model_dump(mode="json"))
    task = ledger.open_training_group(1).task_id
    claim(ledger)
    bad = Score(
        rollout_id="g000000-r0", source="exploits", source_version="1", value=1.0, cause="curl"
    )
    grade_right = bad.model_copy(update={"source": "right", "cause": None})
    ledger.write_scores("g000000-r0", [bad, grade_right])
    ledger.close_ready(compose, group_mean, max_caught=1)
    said = CliRunner().invoke(app, ["rewards", "monitor", str(tmp_path)]).output
    assert f"g000000-r0  task {task}: exploits in g000000-r0: curl" in said
    assert f"task {task} is set aside" in said
    restored = CliRunner().invoke(app, ["rewards", "restore", str(tmp_path), task]).output
    assert restored == f"drawn again: {task}\n"
