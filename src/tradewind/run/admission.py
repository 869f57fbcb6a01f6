"""Admission at the preparation of a run: unadmitted tasks do not train.

taskset ──► `tradewind tasks admit` in a process of its own ──► register beside the taskset
        ──► every arm: training tasks without an admission that holds are left out, and named
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tradewind.rewards.admission.record import (
    Admission,
    Failure,
    Hashes,
    hashes_of,
    read_register,
    register_file,
)
from tradewind.run.prepare import environment
from tradewind.run.process import inherited_environment, last_sentence
from tradewind.run.recipe import Recipe
from tradewind.run.workspace import Workspace
from tradewind.types import Split, Task, UserError

NAMED = 3
"""Tasks that a sentence names."""
TURN_OFF = "set [tasks] admit = false to train on the tasks as they are"


@dataclass(frozen=True)
class Tasks:
    """What a run may work on."""

    tasks: list[Task]
    """All held-out tasks, and the training tasks that are admitted."""
    refused: tuple[Admission, ...] = ()
    """Training tasks that are left out."""
    doubtful: tuple[Admission, ...] = ()
    """Held-out tasks that are not admitted; they stay, or results could not be compared."""

    def sentence(self) -> str | None:
        """What is left out and why; None if nothing is."""
        if not self.refused and not self.doubtful:
            return None
        parts = []
        if self.refused:
            parts.append(
                f"{len(self.refused)} training tasks are not admitted: {_named(self.refused)}"
            )
        if self.doubtful:
            held = f"{len(self.doubtful)} held-out tasks would not be, and stay"
            parts.append(f"{held}: {_named(self.doubtful)}")
        return "; ".join(parts)


def admit_for_run(
    recipe: Recipe, workspace: Workspace, folder: Path, tell: Callable[[int], None] = lambda _: None
) -> None:
    """Admit what is new or changed; raises `UserError` with the command's sentence if it fails.

    `tell` hears how many tasks are left.

    A process of its own, because the reward's relative paths begin in the recipe's folder, and
    because the customer's verifiers run there.
    """
    workspace.logs.mkdir(parents=True, exist_ok=True)
    log = workspace.logs / "admit.log"
    argv = [sys.executable, "-m", "tradewind", "tasks", "admit"]
    argv += [str(folder / recipe.tasks.path), "--reward", str(workspace.recipe)]
    argv += ["--in", str(folder), "--parallel", str(recipe.grader.parallel), "--progress"]
    with (
        log.open("ab") as file,
        subprocess.Popen(
            argv,
            cwd=folder,
            env={**inherited_environment(), **environment(recipe, folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
        ) as process,
    ):
        for line in process.stdout or ():
            tell(int(line))
    if process.returncode not in (0, 1):
        what, _, fix = last_sentence(log).removeprefix("tradewind: ").partition(". Fix: ")
        raise UserError(
            f"the tasks cannot be admitted: {what}",
            fix=f"{fix.rstrip('.') or f'read {log}'}, or {TURN_OFF}",
        )


def admitted_tasks(
    recipe: Recipe, taskset: Path, tasks: Sequence[Task], folder: Path = Path()
) -> Tasks:
    """The tasks without those that may not train; raises `UserError` if none is left to train on.

    A training task of which nothing is known, or that changed since, is not admitted either. Files
    that references name begin in `folder`.
    """
    if not recipe.tasks.admit:
        return Tasks(list(tasks))
    register, now = read_register(taskset), hashes_of(tasks, folder)
    kept, refused, doubtful = [], [], []
    for task in tasks:
        hashes = now[task.task_id]
        found = register and register.known(task.task_id, hashes, register.basis)
        admission = found or _unknown(task, hashes)
        if admission.admitted:
            kept.append(task)
        elif task.split is Split.HELDOUT:
            kept.append(task)
            doubtful.append(admission)
        else:
            refused.append(admission)
    if not any(task.split is Split.TRAIN for task in kept):
        first = refused[0]
        raise UserError(
            f"none of the {len(refused)} training tasks is admitted; {first.task_id}: "
            f"{first.failures[0].sentence}",
            value=str(register_file(taskset)),
            fix=f"correct the taskset or the reward (that file says what each task lacks), or "
            f"{TURN_OFF}",
        )
    return Tasks(kept, tuple(refused), tuple(doubtful))


def _unknown(task: Task, now: Hashes) -> Admission:
    why = Failure(rule="scorable", sentence="it was never tried, or it changed since")
    return Admission(task_id=task.task_id, task_hash=now.task, kind_hash=now.kind, failures=(why,))


def _named(found: Sequence[Admission]) -> str:
    shown = "; ".join(f"{a.task_id} ({a.failures[0].sentence})" for a in found[:NAMED])
    return shown + (f"; {len(found) - NAMED} more" if found[NAMED:] else "")
