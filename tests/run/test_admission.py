"""Unadmitted tasks do not train: the command, and what a run does with its result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tradewind.run.admission import admit_for_run, admitted_tasks
from tradewind.run.cli import app
from tradewind.run.prepare import read_tasks
from tradewind.run.recipe import Recipe, read_recipe
from tradewind.run.resolved import write_toml
from tradewind.run.workspace import Workspace
from tradewind.types import UserError

RECIPE = """
[model]
path = "model"
[env]
entry = "toy.env:rollout"
[tasks]
path = "tasks.jsonl"
admission = { mutants = 4 }
[[grader.signals]]
use = "verifier.py:equal"
[[pools]]
name = "paris"
"""
VERIFIER = """
def equal(task, outcome):
    return float(outcome["artefacts"].get("answer") == task["reference"]["answer"])
"""


def row(number: int, split: str, answer: str, question: str = "Which city?") -> str:
    reference = {"answer": answer, "oracle": {"answer": answer}}
    task = {"task_id": f"{split}-{number}", "kind": "k", "split": split}
    return json.dumps({**task, "input": {"question": question}, "reference": reference}) + "\n"


SOUND = [row(n, "train", city) for n, city in enumerate(("Oslo", "Rome", "Lima"))]
HELD = row(0, "heldout", "Cairo")
LEAKY = "Is it New York City or not?"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a recipe, its verifier and a taskset with one leaky task on either side."""
    (tmp_path / "small.toml").write_text(RECIPE)
    (tmp_path / "verifier.py").write_text(VERIFIER)
    leaky = [row(9, "train", "New York City", LEAKY), row(9, "heldout", "New York City", LEAKY)]
    (tmp_path / "tasks.jsonl").write_text("".join([*SOUND, HELD, *leaky]))
    return tmp_path


def prepared(place: Path, *overrides: str, tell=lambda left: None) -> tuple[Recipe, Path]:
    """What a launch does before its first stage."""
    recipe = read_recipe(place / "small.toml", overrides, place / "runs")
    workspace = Workspace(place / "runs" / "small")
    workspace.folder.mkdir(parents=True, exist_ok=True)
    workspace.recipe.write_text(write_toml(recipe))
    admit_for_run(recipe, workspace, place, tell)
    return recipe, place / recipe.tasks.path


def test_a_task_that_is_not_admitted_is_left_out_of_training_and_named(place):
    recipe, taskset = prepared(place)
    found = admitted_tasks(recipe, taskset, read_tasks(taskset))
    names = [task.task_id for task in found.tasks]
    assert names == ["train-0", "train-1", "train-2", "heldout-0", "heldout-9"]
    said = found.sentence()
    assert "1 training tasks are not admitted: train-9 (the input holds 'New York City'" in said
    assert "1 held-out tasks would not be, and stay: heldout-9" in said


def test_a_launcher_hears_how_many_tasks_are_left(place):
    heard: list[int] = []
    prepared(place, tell=heard.append)
    assert heard == [5, 4, 3, 2, 1, 0]


def test_a_task_whose_reference_names_a_file_that_changed_does_not_train(place):
    """Seen: the database behind a reference was made anew, and its old admission still held."""
    (place / "answers.csv").write_text("Oslo")
    named = [row(n, "train", city) for n, city in enumerate(("answers.csv", "Rome", "Lima"))]
    (place / "tasks.jsonl").write_text("".join([*named, HELD]))
    recipe, taskset = prepared(place)
    tasks = read_tasks(taskset)
    assert len(admitted_tasks(recipe, taskset, tasks, place).tasks) == 4
    (place / "answers.csv").write_text("Bergen")
    with pytest.raises(UserError, match="changed since"):
        admitted_tasks(recipe, taskset, tasks, place)


def test_a_task_that_changed_after_it_was_admitted_does_not_train(place):
    recipe, taskset = prepared(place)
    other = row(0, "train", "Oslo", "Which town?")
    taskset.write_text("".join([other, *SOUND[1:], HELD]))
    with pytest.raises(UserError, match=r"none of the 3 training tasks is admitted.*changed since"):
        admitted_tasks(recipe, taskset, read_tasks(taskset))


def test_a_run_without_a_task_that_may_train_says_what_the_first_one_lacks(place):
    leaky = [row(n, "train", "New York City", LEAKY) for n in range(2)]
    (place / "tasks.jsonl").write_text("".join([*leaky, HELD]))
    recipe, taskset = prepared(place)
    with pytest.raises(UserError, match=r"none of the 2 .* train-0: .*\[tasks\] admit = false"):
        admitted_tasks(recipe, taskset, read_tasks(taskset))
    asked = read_recipe(place / "small.toml", ["tasks.admit=false"], place / "runs")
    assert len(admitted_tasks(asked, taskset, read_tasks(taskset)).tasks) == 3


def test_a_verifier_that_does_not_load_stops_the_run_with_its_sentence(place):
    (place / "verifier.py").write_text("def equal(:")
    with pytest.raises(UserError, match=r"cannot be admitted: .*SyntaxError.*admit = false"):
        prepared(place)


def test_the_command_prints_a_table_and_a_sentence_for_each_task_that_may_not_train(
    place, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "160")
    argv = ["tasks", "admit", str(place / "tasks.jsonl"), "--reward", str(place / "small.toml")]
    shown = CliRunner().invoke(app, argv)
    assert shown.exit_code == 1
    assert "train-9: leak: the input holds 'New York City'" in shown.stdout
    assert "4 of 6 tasks are admitted" in shown.stdout
    assert "at most 0.1" in shown.stdout  # thresholds stand beside the result
    data = json.loads(CliRunner().invoke(app, [*argv, "--json", "--floor", "0.05"]).stdout)
    assert (data["admitted"], data["refused"]) == (4, 2)
    assert data["options"]["floor"] == 0.05 and data["options"]["mutants"] == 4


def test_the_command_takes_a_file_with_signals_alone(place):
    (place / "reward.toml").write_text('[[signals]]\nuse = "verifier.py:equal"\n')
    (place / "sound.jsonl").write_text("".join(SOUND))
    argv = ["tasks", "admit", str(place / "sound.jsonl"), "--reward", str(place / "reward.toml")]
    assert CliRunner().invoke(app, argv).exit_code == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read"),
        ("[[signals", "not valid TOML"),
        ("[grader]\n", "names no signals"),
        ('[[signals]]\nuse = "resultset"\nweigth = 2\n', "did you mean 'weight'"),
    ],
)
def test_a_reward_file_that_does_not_work_is_a_sentence(place, text, said):
    file = place / "reward.toml"
    if text is not None:
        file.write_text(text)
    argv = ["tasks", "admit", str(place / "tasks.jsonl"), "--reward", str(file)]
    failed = CliRunner().invoke(app, argv)
    assert isinstance(failed.exception, UserError)
    assert said in str(failed.exception)
