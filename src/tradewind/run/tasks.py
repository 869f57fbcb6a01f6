"""`tradewind tasks`: which tasks of a taskset may train."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tradewind.envs.taskset import load_tasks
from tradewind.rewards.admission.admit import Admitted, admit
from tradewind.rewards.admission.options import AdmissionOptions
from tradewind.rewards.admission.record import Admission, register_file
from tradewind.run.options import AsJson, Folder, Reward
from tradewind.run.reward_file import read_reward, reward_beside
from tradewind.types import Task

REFUSED = 1
SHOWN = 20
"""Refused tasks that are printed; `--json` and the file beside the taskset have them all."""
RULES = {
    "scorable": "every signal can score the task",
    "oracle": "a right answer reaches the maximum",
    "agreement": "the same answer gets the same verdict",
    "guess": "no answer that knows nothing passes the floor",
    "attack": "no known attack on a verifier pays",
    "majority": "no fixed answer is right for most of its kind",
    "mutants": "answers with a small error are rejected",
    "leak": "the input holds nothing of the reference",
    "time": "a verdict is given in time",
}
"""What each rule asks, in the order of the table."""

app = typer.Typer(help="Which tasks of a taskset may train.", no_args_is_help=True)


@app.callback()
def tasks() -> None:
    """Which tasks of a taskset may train."""


@app.command("admit")
def admit_tasks(  # noqa: PLR0913  one parameter per option
    taskset: Annotated[Path, typer.Argument(metavar="TASKSET", help="JSON lines, a task each.")],
    reward: Reward = None,
    folder: Folder = None,
    parallel: Annotated[int, typer.Option(min=1, help="Tasks at a time.")] = 2,
    floor: Annotated[float | None, typer.Option(help="Most that a guess may get.")] = None,
    repeats: Annotated[int | None, typer.Option(help="How often the oracle is scored.")] = None,
    mutants: Annotated[int | None, typer.Option(help="Errors that are made in it.")] = None,
    rejected: Annotated[float | None, typer.Option(help="Share of them to be rejected.")] = None,
    budget: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Longest that a verdict may take.")
    ] = None,
    need_oracle: Annotated[
        bool | None, typer.Option("--need-oracle", help="Refuse tasks without a known answer.")
    ] = None,
    as_json: AsJson = False,
    progress: Annotated[bool, typer.Option("--progress", hidden=True)] = False,
) -> None:
    """Try each task without a policy: exit code 1 if one of them may not train.

    What was found is kept beside the taskset; a task that did not change since is not tried again.
    """
    known = load_tasks(taskset)
    reward = reward_beside(taskset, reward)
    said = read_reward(reward, taskset.parent)
    options = _options(
        said.tasks.admission,
        {
            "floor": floor,
            "repeats": repeats,
            "mutants": mutants,
            "rejected": rejected,
            "budget_s": budget,
            "need_oracle": need_oracle,
        },
    )
    place = taskset.absolute()
    console = Console(stderr=True, quiet=as_json or progress)

    def tell(left: int) -> None:
        status.update(f"{left} tasks left")
        if progress:  # for a launcher, a number a line
            print(left, flush=True)

    with contextlib.chdir(folder or reward.absolute().parent), console.status("") as status:
        found = admit(
            place,
            known,
            said.composition,
            options,
            parallel=parallel,
            tell=tell,
        )
    if as_json:
        print(json.dumps(_as_data(place, found)))
    elif not progress:
        _print(place, known, found)
    raise typer.Exit(REFUSED if found.refused else 0)


def _options(
    base: AdmissionOptions, given: dict[str, float | int | bool | None]
) -> AdmissionOptions:
    said = {name: value for name, value in given.items() if value is not None}
    changed = base.model_copy(update=said)
    return AdmissionOptions.with_options(None, changed.model_dump())


def _as_data(taskset: Path, found: Admitted) -> dict[str, object]:
    register = found.register
    return {
        "taskset": str(taskset),
        "register": str(register_file(taskset)),
        "composition": register.composition,
        "signals": register.signals,
        "options": register.options,
        "looked_at": found.looked_at,
        "admitted": len(found.admissions) - len(found.refused),
        "refused": len(found.refused),
        "tasks": [
            {**admission.model_dump(mode="json"), "admitted": admission.admitted}
            for admission in found.admissions
        ],
    }


def _print(taskset: Path, known: list[Task], found: Admitted) -> None:
    console = Console()
    table = Table(title=f"admission of {taskset.name}", title_style="bold")
    for column in ("", "what a task must show", "threshold", "what was found"):
        table.add_column(column)
    failed = Counter(f.rule for a in found.refused for f in a.failures)
    for rule, asks in RULES.items():
        mark = f"[bold red]{failed[rule]}[/]" if failed[rule] else "[green]\N{CHECK MARK}[/]"
        threshold, counted = _figures(rule, found)
        table.add_row(mark, asks, threshold, counted)
    console.print(table)
    for admission in found.refused[:SHOWN]:
        for failure in admission.failures:
            line = f"{admission.task_id}: {failure.rule}: {failure.sentence}"
            console.print(Text(line, style="red"), soft_wrap=True)
    if (more := len(found.refused) - SHOWN) > 0:
        console.print(f"and {more} more, all of them are in {register_file(taskset).name}")
    console.print(summary(known, found.admissions), highlight=False)


def summary(known: list[Task], admissions: tuple[Admission, ...]) -> str:
    """How many tasks may train, and what nobody could check."""
    admitted = sum(admission.admitted for admission in admissions)
    blind = sum(not admission.oracle for admission in admissions)
    undecided = sum(admission.undecided for admission in admissions)
    text = f"{admitted} of {len(known)} tasks are admitted"
    if blind:
        text += (
            f"; for {blind} nobody knows a right answer, so nothing shows that they can be solved"
        )
    if undecided:
        text += f"; on {undecided} guesses the verifier failed instead of rejecting them"
    return text


def _figures(rule: str, found: Admitted) -> tuple[str, str]:
    """The threshold of a rule and what was counted."""
    options, admissions = found.register.options, found.admissions
    oracles = sum(a.oracle for a in admissions)
    match rule:
        case "oracle":
            return f"{options['maximum']:g}", f"{oracles} oracles of {len(admissions)} tasks"
        case "agreement":
            return f"{options['repeats']} runs", f"{sum(a.verdicts for a in admissions)} verdicts"
        case "guess":
            return f"at most {options['floor']:g}", f"{sum(a.guesses for a in admissions)} guesses"
        case "attack":
            return f"on {options['attacked']} tasks", ""
        case "majority":
            return f"at most {options['majority']:.0%}", ""
        case "mutants":
            tried = sum(a.mutants for a in admissions)
            share = f"{sum(a.rejected for a in admissions) / tried:.1%}" if tried else "none"
            return f"at least {options['rejected']:.0%} each", f"{share} of {tried} mutants"
        case "leak":
            return f"{options['leak_characters']} characters", ""
        case "time":
            slowest = max((a.slowest_s for a in admissions), default=0.0)
            return f"{options['budget_s']:g} s", f"slowest {slowest:.3f} s"
    return "", ""
