from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from recipes import TEXT, write_recipe
from test_model import make_folder

from tradewind.ledger.ledger import Ledger
from tradewind.run.preflight import check_disk, check_memory, check_run
from tradewind.run.prepare import environment, open_run, publish_base, read_tasks
from tradewind.run.recipe import Recipe, read_recipe
from tradewind.run.workspace import Workspace
from tradewind.types import UserError
from tradewind.weights.bucket import Bucket
from tradewind.weights.chain import newest_version
from tradewind.weights.checkpoint import write_file
from tradewind.weights.tensors import TensorSet


def row(task_id: str, split: str) -> str:
    task = {"task_id": task_id, "kind": "k", "split": split, "input": {}, "reference": {}}
    return json.dumps(task) + "\n"


GOOD = row("a", "train") + row("b", "heldout")


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return read_recipe(write_recipe(tmp_path), runs=tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "the taskset cannot be read .No such file"),
        ("{}", "line 1: task_id: Field required"),
        ('{"task_id": "a", "input": {}, "reference": {}}', "no tasks with split 'heldout'"),
        (GOOD + "not json", "line 3: Invalid JSON"),
        (GOOD + row("a", "train"), "line 3: task_id 'a' is already on line 1"),
        ("", "the taskset has no tasks"),
        (row("b", "heldout"), "no tasks with split 'train'"),
        (row("a", "train"), "no tasks with split 'heldout'"),
        ("{}\n" * 9, "9 bad rows .line 1.*; line 3: .*; \\.\\.\\."),
    ],
)
def test_bad_tasks_get_a_sentence(tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "tasks.jsonl"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UserError, match=said):
        read_tasks(file)


def test_good_tasks_are_read_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text(GOOD + "\n")
    assert [task.task_id for task in read_tasks(tmp_path / "tasks.jsonl")] == ["a", "b"]


def test_the_base_is_version_0_however_often_it_is_published(
    tmp_path: Path, recipe: Recipe
) -> None:
    model = make_folder(tmp_path / "m")
    write_file(model / "model.safetensors", TensorSet.of({"w": np.arange(9, dtype=np.uint16)}))
    (tmp_path / "tasks.jsonl").write_text(GOOD)
    workspace = Workspace(tmp_path / "run")
    url = workspace.bucket.as_uri()
    for _ in range(2):
        open_run(recipe, workspace, read_tasks(tmp_path / "tasks.jsonl"), "run-main")
        publish_base(workspace, model, url, "run-main")
    ledger = Ledger.open(workspace.ledger)
    assert [(v.version, v.stage) for v in ledger.versions()] == [(0, "base")]
    assert newest_version(Bucket.open(url)) == 0
    assert len(ledger.tasks()) == 2


def test_the_customers_code_finds_its_module_and_its_settings(tmp_path: Path) -> None:
    text = TEXT.replace(
        "[[pools]]", 'pythonpath = "lib"\nsettings = {DB = "{data}/x"}\n[[pools]]', 1
    )
    recipe = read_recipe(write_recipe(tmp_path, text), runs=tmp_path / "runs")
    env = environment(recipe, tmp_path)
    assert env["DB"] == str(tmp_path / "runs" / "small" / "data" / "x")
    assert env["PYTHONPATH"].split(os.pathsep)[0] == str(tmp_path / "lib")


def test_preflight_tells_of_everything_that_fails_at_once(tmp_path: Path) -> None:
    text = TEXT.replace('entry = "toy.env:rollout"', "")
    recipe = read_recipe(write_recipe(tmp_path, text), runs=tmp_path)
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(UserError) as caught:
        check_run(recipe, Workspace(tmp_path), tmp_path, (blocked / "bucket").as_uri())
    assert "[env] entry is missing" in str(caught.value)
    assert "the bucket folder cannot be made" in str(caught.value)


def test_preflight_knows_disk_and_memory(tmp_path: Path) -> None:
    check_disk(tmp_path / "not" / "there" / "yet", 1)
    check_memory(1)
    with pytest.raises(UserError, match="the disk has"):
        check_disk(tmp_path, 10**18)
    with pytest.raises(UserError, match="of memory available and the run needs"):
        check_memory(10**18)
