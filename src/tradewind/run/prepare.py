"""Before the processes: data, ledger, tasks, base version. All of it may be done twice."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tradewind.envs.taskset import load_tasks
from tradewind.ledger.ledger import Ledger
from tradewind.ledger.place import point_to
from tradewind.run.process import inherited_environment, last_sentence
from tradewind.run.recipe import Recipe
from tradewind.run.workspace import Workspace
from tradewind.types import Event, Json, Split, Task, UserError
from tradewind.weights.bucket import Bucket
from tradewind.weights.checkpoint import read_folder
from tradewind.weights.hazard import compile_ahead
from tradewind.weights.publish import Publisher
from tradewind.weights.signing import Signer

IMPORT_S = 120.0
"""Longest that importing the customer's environment may take, in seconds."""


def make_data(recipe: Recipe, workspace: Workspace, folder: Path) -> None:
    """Run `[env] prepare` in the recipe's folder; raises UserError with its last line if it fails.

    `{data}` of the recipe is the data folder of the main arm.
    """
    workspace.data.mkdir(parents=True, exist_ok=True)
    if recipe.env.prepare is None:
        return
    workspace.logs.mkdir(parents=True, exist_ok=True)
    log = workspace.logs / "prepare.log"
    command = shlex.split(recipe.env.prepare)
    with log.open("ab") as file:
        try:
            code = subprocess.run(
                command,
                cwd=folder,
                env={**inherited_environment(judge_keys(recipe)), **environment(recipe, folder)},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                check=False,
            ).returncode
        except OSError as error:
            raise UserError(
                f"the command of [env] prepare cannot be started ({error.strerror})",
                value=recipe.env.prepare,
                fix="correct it; {python} stands for this interpreter",
            ) from error
    if code != 0:
        raise UserError(
            f"the command of [env] prepare failed with exit code {code}: {last_sentence(log)}",
            value=recipe.env.prepare,
            fix=f"read {log}",
        )


def judge_keys(recipe: Recipe) -> tuple[str, ...]:
    """Names of the variables that hold keys of judges: for the grader alone, since an agent that
    had one could judge itself.
    """
    judges = [signal.options for signal in recipe.grader.signals]
    judges += recipe.grader.probes.heldout.values()
    named = (options.get("key_env") for options in judges)
    return tuple(sorted({name for name in named if isinstance(name, str)}))


def environment(recipe: Recipe, folder: Path) -> dict[str, str]:
    """What the customer's code needs in its environment: settings and where its module lies."""
    extra = [] if recipe.env.pythonpath is None else [folder / recipe.env.pythonpath]
    return {**recipe.env.settings, **python_path(extra)}


def python_path(extra: Sequence[Path] = ()) -> dict[str, str]:
    """PYTHONPATH of a child that works in another folder: `extra`, then ours made absolute."""
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    places = [*extra, *(Path(place) for place in inherited if place)]
    return {"PYTHONPATH": os.pathsep.join(str(p.absolute()) for p in places)} if places else {}


def read_tasks(file: Path) -> list[Task]:
    """A taskset with both splits; raises UserError as `load_tasks` does, or if one is empty."""
    tasks = load_tasks(file)
    for split in Split:
        if not any(task.split is split for task in tasks):
            raise UserError(
                f"there are no tasks with split {split.value!r}",
                value=str(file),
                fix=f'write "split": "{split.value}" into some rows: a run needs tasks to train on'
                " and tasks that are held out",
            )
    return tasks


def check_corpus(file: Path) -> None:
    """Raise UserError if the documents that the recipe trains on are not there."""
    if not file.is_file():
        raise UserError(
            "the corpus does not exist",
            value=str(file),
            fix="make it with [env] prepare, name it in [corpus] path, or leave out [midtrain] and"
            " [trainer] rehearsal_rows",
        )


def check_environment(recipe: Recipe, folder: Path) -> None:
    """Raise UserError if the worker could not load the entry.

    In a process of its own, as the worker would: it runs the customer's code.
    """
    argv = [sys.executable, "-m", "tradewind.envs.protocol", recipe.env.entry]
    try:
        done = subprocess.run(
            argv,
            cwd=folder,
            env={**inherited_environment(judge_keys(recipe)), **environment(recipe, folder)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=IMPORT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UserError(
            f"the environment was not imported within {IMPORT_S:.0f} s",
            value=recipe.env.entry,
            fix="let the module only define things, and do its work inside the rollout",
        ) from error
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        what, _, fix = said.partition(". Fix: ")
        raise UserError(what, fix=fix.rstrip(".") or "run the file with python to see why")


def open_run(
    recipe: Recipe,
    workspace: Workspace,
    tasks: list[Task],
    run_id: str,
    left_out: str | None = None,
) -> None:
    """Create the ledger with its tasks; on a second call, check that they are the same.

    `left_out` says which tasks may not train; it is kept as an event.
    """
    workspace.folder.mkdir(parents=True, exist_ok=True)
    meta: Json = {"run_id": run_id, "seed": recipe.run.seed, "name": recipe.run.name}
    bucket, database = workspace.bucket.name, recipe.run.ledger
    if database is not None:
        bucket = workspace.bucket.absolute().as_uri()
        meta |= {"folder": point_to(workspace.folder, database)}
        _refuse_another_run(database, meta["folder"])
    with Ledger.open(workspace.ledger, bucket=bucket) as ledger:
        ledger.create_run(meta)
        if left_out is not None and not ledger.tasks():  # before them: a kill may come in between
            ledger.event(
                Event(at=time.time(), process="run", kind="tasks.left_out", detail=left_out)
            )
        ledger.add_tasks(tasks)


def _refuse_another_run(database: str, folder: str) -> None:
    with Ledger.open(database) as ledger:
        run, other = ledger.meta("run_id"), ledger.meta("folder", folder) != folder
    if other:
        raise UserError(
            f"this database holds the ledger of another run ({run})",
            value=database,
            fix="name an empty database in [run] ledger, or go on in that run's folder",
        )


def publish_base(workspace: Workspace, model: Path, bucket_url: str, run_id: str) -> None:
    """Version 0: the base checkpoint, named in bucket and ledger. Its bytes are not uploaded.

    Compiles the codec too, before trainer and pools would do so side by side.
    """
    compile_ahead()
    with Ledger.open(workspace.ledger) as ledger:
        tensors = read_folder(model)
        publisher = Publisher(Bucket.open(bucket_url), run_id, signer=Signer.from_environment())
        version = publisher.publish(0, None, {}, tensors, "base")
        if not ledger.versions():
            ledger.commit_version(version)
        publisher.announce(version)


def link_model(workspace: Workspace, model: Path) -> None:
    """`model/` in the workspace, where the processes look for it."""
    link = workspace.folder / "model"
    if link.is_symlink():
        link.unlink()
    link.symlink_to(model.absolute(), target_is_directory=True)


def write_config(workspace: Workspace, name: str, section: Mapping[str, object]) -> Path:
    """One process's section as JSON; returns the file."""
    folder = workspace.folder / "config"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.json"
    file.write_text(json.dumps(section, indent=2), encoding="utf-8")
    return file
