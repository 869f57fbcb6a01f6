"""`tradewind run`: everything that a recipe says, on this machine.

consumes     a recipe
produces     runs/<name>/: ledger, bucket, logs, results.json, report.html
waits for    the stages of its arms (see `arm.py`)
unblocked by the processes that it supervises
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tradewind.run.admission import admit_for_run
from tradewind.run.arm import Arm
from tradewind.run.interruption import Interruption
from tradewind.run.live import View
from tradewind.run.model import cache_folder, resolve_model
from tradewind.run.preflight import check_run
from tradewind.run.prepare import check_corpus, check_environment, make_data, read_tasks
from tradewind.run.recipe import Recipe, read_recipe
from tradewind.run.resolved import differences, write_toml
from tradewind.run.summary import write_summary
from tradewind.run.workspace import Workspace, write_atomic
from tradewind.types import UserError

SHOWN = 5
"""Changed keys that a refusal names."""


@dataclass(frozen=True)
class Launch:
    """What the command line asks for."""

    recipe_file: Path
    overrides: tuple[str, ...] = ()
    runs: Path = field(default_factory=lambda: Path("runs"))
    resume: bool = False

    @property
    def folder(self) -> Path:
        """Where relative paths of the recipe begin."""
        return self.recipe_file.absolute().parent


def launch(asked: Launch, view: View) -> Workspace:
    """Play the whole recipe; returns its workspace. Raises UserError, Stalled, ProcessFailed."""
    recipe = read_recipe(asked.recipe_file, asked.overrides, asked.runs)
    workspace = Workspace((asked.runs / recipe.run.name).absolute())
    workspace.folder.mkdir(parents=True, exist_ok=True)
    with only_launcher(workspace), Interruption() as interruption:
        claim_folder(workspace, recipe, asked)
        model = base_model(recipe, workspace, asked.folder, view)
        bucket_url = workspace.bucket.as_uri()
        check_run(recipe, workspace, model, bucket_url)
        prepare_once(recipe, workspace, asked.folder, view)
        Arm("main", recipe, workspace, asked.folder, view).play(model, interruption)
        if recipe.control.steps:
            control = control_recipe(recipe)
            Arm("control", control, workspace.control, asked.folder, view).play(model, interruption)
        write_summary(recipe, workspace)
    return workspace


def claim_folder(workspace: Workspace, recipe: Recipe, asked: Launch) -> None:
    """Make the folder this recipe's, or check that it is; raises UserError if it is not.

    A launch that ended before its first stage holds nobody to its recipe.
    """
    resolved = write_toml(recipe)
    before = workspace.recipe.read_text(encoding="utf-8") if workspace.recipe.exists() else ""
    if not workspace.stages.exists():
        if before != resolved:
            prepared(workspace).unlink(missing_ok=True)
            write_atomic(workspace.recipe, resolved)
        return
    if not asked.resume:
        raise UserError(
            "the run's folder exists",
            value=str(workspace.folder),
            fix="add --resume to continue it, --fresh to put it aside and begin anew, or set"
            " another name with --set run.name=NAME",
        )
    if changed := differences(before, resolved):
        more = f"; {len(changed) - SHOWN} more" if changed[SHOWN:] else ""
        raise UserError(
            "the recipe is not the one with which the run began: "
            + "; ".join(changed[:SHOWN])
            + more,
            value=str(asked.recipe_file),
            fix=f"restore the recipe (it is in {workspace.recipe}), or begin anew with --fresh",
        )


def prepared(workspace: Workspace) -> Path:
    """Exists once the data of this recipe was made and its tasks were read."""
    return workspace.folder / "prepared"


def put_aside(workspace: Workspace) -> Path | None:
    """Rename the run's folder so that a new one can begin; None if there is none."""
    if not workspace.folder.exists():
        return None
    number = 1
    while (aside := workspace.folder.with_name(f"{workspace.folder.name}.{number}")).exists():
        number += 1
    workspace.folder.rename(aside)
    return aside


@contextlib.contextmanager
def only_launcher(workspace: Workspace) -> Iterator[None]:
    """Hold the run's lock; the system frees it whatever way this process dies."""
    with (workspace.folder / "launcher.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(
                "another launcher works on this run",
                value=str(workspace.folder),
                fix=f"wait for it, end it, or look at it: tradewind status {workspace.folder}",
            ) from error
        yield


def base_model(recipe: Recipe, workspace: Workspace, folder: Path, view: View) -> Path:
    """The checkpoint folder; a run that began keeps the one with which it began."""
    chosen = workspace.folder / "model"
    if chosen.exists():
        return chosen.resolve()
    config = recipe.model
    if config.path is not None:
        config = config.model_copy(update={"path": folder / config.path})
    return resolve_model(config, cache_folder(), view.say)


def prepare_once(recipe: Recipe, workspace: Workspace, folder: Path, view: View) -> None:
    """Make the data unless an earlier launch did, and check the tasks."""
    if not prepared(workspace).exists():
        if recipe.env.prepare is not None:
            view.say("preparing the data")
        make_data(recipe, workspace, folder)
        tasks = read_tasks(folder / recipe.tasks.path)
        if recipe.tasks.admit and "signals" not in recipe.grader.model_fields_set:
            raise UserError(
                "the recipe does not say what checks an answer",
                fix='write a [[grader.signals]] table, as with use = "exact"; docs/rewards.md has'
                " all that there are",
            )
        if recipe.midtrain.steps or recipe.trainer.rehearsal_rows:
            check_corpus(folder / recipe.corpus.path)
        check_environment(recipe, folder)
        if recipe.tasks.admit:
            n = len(tasks)
            view.say(f"admitting {n} tasks")
            admit_for_run(
                recipe, workspace, folder, lambda left: view.work("tasks admitted", n - left, n)
            )
        prepared(workspace).touch()


def control_recipe(recipe: Recipe) -> Recipe:
    """The same run without the corpus and without users, for a few steps."""
    trainer = recipe.trainer.model_copy(update={"steps": recipe.control.steps, "rehearsal_rows": 0})
    midtrain = recipe.midtrain.model_copy(update={"steps": 0})
    users = recipe.users.model_copy(update={"command": None})
    run = recipe.run.model_copy(update={"ledger": recipe.control.ledger})
    changed = {"run": run, "trainer": trainer, "midtrain": midtrain, "users": users}
    return recipe.model_copy(update=changed)
