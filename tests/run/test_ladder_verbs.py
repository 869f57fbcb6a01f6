"""`tradewind rewards` as a person meets it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from synthetic import make_ledger
from typer.testing import CliRunner

from tradewind.run.cli import app
from tradewind.types import UserError

VERIFIER = """
def right(task, outcome):
    return float(outcome["artefacts"].get("answer") == task["reference"]["answer"])

def kind(task, outcome):
    return 1.0
"""
REWARD = '[[signals]]\nuse = "verifier.py:right"\n[[signals]]\nuse = "verifier.py:kind"\n'


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "verifier.py").write_text(VERIFIER)
    (tmp_path / "reward.toml").write_text(REWARD)
    rows = [
        {"task_id": f"t-{n}", "kind": "k", "split": "train", "input": {"question": "?"}}
        | {"reference": {"answer": f"Oslo {n}", "oracle": {"answer": f"Oslo {n}"}}}
        for n in range(25)
    ]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def call(*arguments: object) -> str:
    done = CliRunner().invoke(app, ["rewards", *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_rank_prints_the_ladder_with_reasons_and_thresholds(place, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    argv = ["rank", place / "tasks.jsonl", "--reward", place / "reward.toml"]
    shown = call(*argv)
    assert re.search(r"right: use\. \d+% of the signal is left at a pass rate of 50%", shown)
    assert "kind: refuse. it passes wrong answers as often as right ones" in shown
    assert "usable 0.5 or more to be used" in shown
    data = json.loads(call(*argv, "--json", "--tasks", 20, "--pass-rate", 0.25))
    assert [(s["name"], s["verdict"]) for s in data["signals"]] == [
        ("right", "use"),
        ("kind", "refuse"),
    ]
    assert data["answers"]["oracle"] <= 20
    assert data["signals"][0]["rate"] == 0.25


def test_rank_without_anything_to_measure_on_is_a_sentence(place):
    argv = ["rank", place / "tasks.jsonl", "--reward", place / "reward.toml", "--tasks", 0]
    with pytest.raises(UserError, match="no answer to measure a signal on"):
        call(*argv)


def test_the_reward_beside_a_taskset_need_not_be_named(place):
    assert "right: use" in call("rank", place / "tasks.jsonl")
    (place / "reward.toml").unlink()
    with pytest.raises(UserError, match=r"what the reward .* --reward FILE"):
        call("rank", place / "tasks.jsonl")


def test_labels_of_another_run_are_a_sentence(place):
    (place / "labels.jsonl").write_text('{"rollout_id": "g9-r9", "label": 1}\n')
    argv = ["rank", place / "tasks.jsonl", "--reward", place / "reward.toml"]
    with pytest.raises(UserError, match="none of the 1 labelled rollouts is among those"):
        call(*argv, "--labels", place / "labels.jsonl")


def test_a_run_that_is_named_from_where_one_stands_is_found_from_the_rewards_folder(
    place, tmp_path_factory, monkeypatch
):
    """`rank` and `rescore` work in the folder of the reward; the run is where the person is."""
    here = tmp_path_factory.mktemp("elsewhere")
    (here / "runs" / "mine").mkdir(parents=True)
    make_ledger(here / "runs" / "mine" / "ledger.sqlite").close()
    monkeypatch.chdir(here)
    argv = ["--reward", place / "reward.toml"]
    assert "right: use" in call("rank", place / "tasks.jsonl", *argv, "--run", "runs/mine")
    assert "scored again by reward" in call("rescore", "runs/mine", *argv)


def test_rescore_without_a_reward_that_anybody_named_is_a_sentence(place):
    make_ledger(place / "ledger.sqlite").close()
    with pytest.raises(UserError, match=r"no grader has said .* --reward FILE"):
        call("rescore", place / "ledger.sqlite")
