"""The launcher with stand-ins for its processes, as a person meets it: a command and its output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from recipes import CHILD_ENV, TEXT, write_recipe
from test_model import make_folder

from tradewind.run.launcher import Launch, claim_folder, prepared, put_aside
from tradewind.run.prepare import check_environment
from tradewind.run.process import PidRecord, start_mark
from tradewind.run.recipe import read_recipe
from tradewind.run.stages import Stages, read_stages
from tradewind.run.workspace import Workspace
from tradewind.types import UserError
from tradewind.weights.checkpoint import write_file
from tradewind.weights.tensors import TensorSet

pytestmark = pytest.mark.timeout(400)

HERE = Path(__file__).parent
MAKE = """
import json, pathlib, sys
data = pathlib.Path(sys.argv[1])
rows = [
    {"task_id": f"t{i}", "kind": "a" if i < 6 else "b", "split": "train" if i < 4 else "heldout",
     "input": {"q": i}, "reference": {}}
    for i in range(8)
]
(data / "tasks.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
(data / "corpus.jsonl").write_text('{"text": "all that there is to know"}\\n')
with open(data / "made", "a") as made: made.write("once ")
"""
FULL = TEXT + "[midtrain]\nsteps = 2\n[control]\nsteps = 1\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a recipe, a tiny checkpoint and the script that makes the data."""
    model = make_folder(tmp_path / "model")
    weights = {"w": np.arange(64, dtype=np.uint16)}
    write_file(model / "model.safetensors", TensorSet.of(weights))
    (tmp_path / "make.py").write_text(MAKE)
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "env.py").write_text("async def rollout(task, policy): ...\n")
    write_recipe(tmp_path, FULL)
    return tmp_path


def command(*arguments: str) -> list[str]:
    return [sys.executable, str(HERE / "fake_launcher.py"), *arguments]


def play(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = command("run", "small.toml", "--runs", str(place / "runs"), *arguments)
    return subprocess.run(
        argv,
        cwd=place,
        env=CHILD_ENV,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def wait_for(file: Path, launcher: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while not file.exists():
        assert launcher.poll() is None, "the launcher ended"
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_whole_run_leaves_results_a_report_and_a_table(place: Path) -> None:
    done = play(place, "--plain")
    assert done.returncode == 0, done.stdout + done.stderr
    run = place / "runs" / "small"
    results = json.loads((run / "results.json").read_text())
    for arm in ("base", "midtrained", "rl", "control"):
        assert results[f"heldout.{arm}"]["n"] == 4
    assert results["heldout.rl.unseen"]["n"] == 2
    assert (results["steps.rl"], results["steps.control"]) == (3, 1)
    assert results["seconds.total"] >= results["seconds.rl"] > 0
    assert "mid-trained + RL" in done.stdout and "100.0 %" in done.stdout
    assert "</html>" in (run / "report.html").read_text()
    assert not any((run / "pids").iterdir()), "no process is left"


def test_mid_training_without_a_corpus_is_refused_before_anything_starts(place: Path) -> None:
    """The trainer said it after the base model had been evaluated."""
    (place / "make.py").write_text(MAKE.replace("corpus.jsonl", "corpse.jsonl"))
    done = play(place)
    assert done.returncode == 2
    assert "the corpus does not exist" in done.stderr
    assert "leave out [midtrain]" in done.stderr and "held out" not in done.stdout


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (None, "No module named 'toy.env'"),
        ("import nothing_such", "No module named 'nothing_such'"),
        ("raise SystemExit('no product here')", "SystemExit: no product here"),
        ("raise ValueError('two\\nlines')", "ValueError: two lines"),
        ("def rollout(task, policy): ...", "this is not an async function"),
        ("async def play(task, policy): ...", "toy.env has no 'rollout'"),
    ],
)
def test_an_environment_that_cannot_be_loaded_is_told_before_anything_starts(
    place: Path, module: str | None, said: str
) -> None:
    """The worker said it after all processes were up, and the run could only be put aside."""
    file = place / "toy" / "env.py"
    file.unlink() if module is None else file.write_text(module)
    recipe = read_recipe(place / "small.toml", runs=place / "runs")
    with pytest.raises(UserError) as caught:
        check_environment(recipe, place)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_an_environment_that_prints_and_warns_at_its_import_is_fine(place: Path) -> None:
    text = "import sys\nprint('hello', file=sys.stderr)\nasync def rollout(task, policy): ...\n"
    (place / "toy" / "env.py").write_text(text)
    check_environment(read_recipe(place / "small.toml", runs=place / "runs"), place)


def test_a_run_that_began_is_continued_or_put_aside_but_never_mixed(tmp_path: Path) -> None:
    asked = Launch(write_recipe(tmp_path), runs=tmp_path / "runs")
    recipe = read_recipe(asked.recipe_file, runs=asked.runs)
    workspace = Workspace(tmp_path / "runs" / "small")
    workspace.folder.mkdir(parents=True)
    claim_folder(workspace, recipe, asked)
    Stages(workspace.stages, "main", ("base",), {})
    with pytest.raises(UserError, match=r"the run's folder exists.*--resume.*--fresh"):
        claim_folder(workspace, recipe, asked)
    claim_folder(workspace, recipe, replace(asked, resume=True))
    changed = read_recipe(asked.recipe_file, ["trainer.lr=0.5"], asked.runs)
    with pytest.raises(UserError, match=r"with which the run began: \[trainer\] lr = 0\.5 \(was"):
        claim_folder(workspace, changed, replace(asked, resume=True))
    assert put_aside(workspace) == tmp_path / "runs" / "small.1"
    assert put_aside(workspace) is None


def test_a_launch_that_failed_before_its_first_stage_holds_nobody_to_its_recipe(
    tmp_path: Path,
) -> None:
    asked = Launch(write_recipe(tmp_path), runs=tmp_path / "runs")
    workspace = Workspace(tmp_path / "runs" / "small")
    workspace.folder.mkdir(parents=True)
    first = read_recipe(asked.recipe_file, runs=asked.runs)
    claim_folder(workspace, first, asked)
    prepared(workspace).touch()
    claim_folder(workspace, first, asked)
    assert prepared(workspace).exists(), "the data are those of this recipe"
    claim_folder(workspace, read_recipe(asked.recipe_file, ["run.seed=8"], asked.runs), asked)
    assert not prepared(workspace).exists(), "another seed makes other data"


def test_a_run_whose_launcher_was_killed_goes_on_where_it_was(place: Path) -> None:
    run = place / "runs" / "small"
    run.mkdir(parents=True)
    (run / "hold").touch()
    argv = command("run", "small.toml", "--runs", str(place / "runs"), "--plain")
    launcher = subprocess.Popen(argv, cwd=place, env=CHILD_ENV, stdout=subprocess.DEVNULL)
    wait_for(run / "began-midtrain", launcher)
    second = play(place, "--resume")
    assert second.returncode == 2, "two launchers on one run"
    assert "another launcher works on this run" in second.stderr
    argv = command("status", str(run), "--json")
    shown = subprocess.run(argv, capture_output=True, text=True, check=True, env=CHILD_ENV)
    assert json.loads(shown.stdout)["stage"] == "midtrain"

    left = [PidRecord.model_validate_json(f.read_text()) for f in (run / "pids").iterdir()]
    assert {record.name for record in left} == {"world", "trainer"}
    launcher.kill()
    launcher.wait()
    assert all(start_mark(record.pid) == record.mark for record in left), "orphans live on"
    (run / "hold").unlink()

    done = play(place, "--resume", "--plain")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ended the world that an earlier launcher left behind" in done.stdout
    assert all(start_mark(record.pid) != record.mark for record in left)
    assert (run / "data" / "made").read_text() == "once "
    stages = {stage.name: stage for stage in read_stages(run / "stages.json").stages}
    assert all(stage.finished_at for stage in stages.values())


def test_an_interrupt_ends_every_process_and_says_how_to_go_on(place: Path) -> None:
    run = place / "runs" / "small"
    run.mkdir(parents=True)
    (run / "hold").touch()
    argv = command("run", "small.toml", "--runs", str(place / "runs"), "--plain")
    launcher = subprocess.Popen(
        argv, cwd=place, env=CHILD_ENV, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    wait_for(run / "began-midtrain", launcher)
    left = [PidRecord.model_validate_json(f.read_text()) for f in (run / "pids").iterdir()]
    os.kill(launcher.pid, signal.SIGTERM)  # ctrl-C takes the same way
    _, said = launcher.communicate(timeout=30)
    assert launcher.returncode == 130
    assert b"interrupted; continue with: tradewind run small.toml --resume" in said
    assert b"Traceback" not in said
    assert all(start_mark(record.pid) != record.mark for record in left)


def test_a_prepare_command_that_fails_is_named_with_its_last_line(place: Path) -> None:
    (place / "make.py").write_text("raise SystemExit('no such product')")
    done = play(place)
    assert done.returncode == 2
    assert "[env] prepare failed with exit code 1: no such product" in done.stderr
    assert "Traceback" not in done.stderr
