"""`tradewind rewards rank` and `rescore`: what could serve as reward, what it would have said."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tradewind.envs.taskset import load_tasks
from tradewind.ledger.ledger import Ledger
from tradewind.ledger.stored import Rescored, StoredGroup
from tradewind.rewards.config import Composition
from tradewind.rewards.ladder.labels import read_labels
from tradewind.rewards.ladder.options import LadderOptions
from tradewind.rewards.ladder.rank import rank as rank_signals
from tradewind.rewards.ladder.rescore import compare, rescore
from tradewind.rewards.ladder.subject import Subject
from tradewind.run.ladder_shown import rank_table, show_rescoring
from tradewind.run.ladder_subjects import Wanted, subjects_of
from tradewind.run.ledgers import ledgers_of, open_ledger
from tradewind.run.options import AsJson, Folder, Reward, Run
from tradewind.run.reward_file import read_reward, reward_beside
from tradewind.run.workspace import Workspace
from tradewind.types import UserError


def rank(  # noqa: PLR0913  one parameter per option
    taskset: Annotated[Path, typer.Argument(metavar="TASKSET", help="JSON lines, a task each.")],
    reward: Reward = None,
    run: Annotated[
        str | None, typer.Option(metavar="RUN", help="Measure on its stored rollouts too.")
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Beside the ledger's: JSON lines of rollout_id, label, signal."
        ),
    ] = None,
    folder: Folder = None,
    tasks: Annotated[int, typer.Option(min=0, help="For how many tasks answers are made.")] = 50,
    rollouts: Annotated[int, typer.Option(min=0, help="Stored rollouts at most.")] = 400,
    slow_attacks: Annotated[
        bool, typer.Option("--slow-attacks", help="Attacks that run into deadlines, too.")
    ] = False,
    pass_rate: Annotated[
        float | None, typer.Option(metavar="RATE", help="Instead of the run's own.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure every signal of a reward and print the ladder, most verifiable first."""
    known = load_tasks(taskset)
    reward = reward_beside(taskset, reward)
    composition = read_reward(reward, taskset.parent).composition
    options = LadderOptions.with_options(None, {"pass_rate": pass_rate})
    said = read_labels(labels) if labels is not None else {}
    wanted = Wanted(tasks=tasks, rollouts=rollouts, slow_attacks=slow_attacks)
    stored = None if run is None else ledgers_of(run)[0]
    console = Console(stderr=True, quiet=as_json)
    with contextlib.chdir(folder or reward.absolute().parent), console.status("measuring"):
        subjects = subjects_of(known, composition, stored, said, wanted)
        rungs = rank_signals(composition.signals, subjects, options)
    if as_json:
        data = {
            "taskset": str(taskset),
            "composition": composition.version,
            "answers": _counts(subjects),
            "options": options.model_dump(mode="json"),
            "signals": [rung.model_dump(mode="json") for rung in rungs],
        }
        print(json.dumps(data))
    else:
        rank_table(Console(), taskset.name, rungs, options, _counts(subjects))


def rescore_run(
    run: Run,
    reward: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Default: what the run uses now.")
    ] = None,
    folder: Folder = None,
    write: Annotated[
        bool, typer.Option("--write", help="Keep the scores, beside those that training used.")
    ] = False,
    parallel: Annotated[int, typer.Option(min=1, help="Groups at a time.")] = 2,
    as_json: AsJson = False,
) -> None:
    """Score stored rollouts again, without inference, and say how many verdicts changed."""
    here = folder or (Path.cwd() if reward is None else reward.absolute().parent)
    with open_ledger(run) as ledger:
        composition = _composition(ledger, reward, Workspace(Path(run)).data)
        with contextlib.chdir(here), Console(stderr=True, quiet=as_json).status("") as status:
            pairs: list[tuple[StoredGroup, list[Rescored]]] = []
            again = rescore(ledger.stored_groups(), composition, ledger.turns, parallel=parallel)
            for pair in again:
                pairs.append(pair)
                status.update(f"{len(pairs)} groups scored")
        found = compare(composition, pairs)
        number = None
        if write and pairs:
            data = composition.model_dump(mode="json")
            rows = [row for _, rescored in pairs for row in rescored]
            number = ledger.write_rescoring(composition.version, data, rows)
    if as_json:
        print(json.dumps({**found.model_dump(mode="json"), "rescoring": number}))
    else:
        show_rescoring(Console(), found, number)


def _composition(ledger: Ledger, reward: Path | None, data: Path) -> Composition:
    """That of a file, or the one that the run uses now."""
    if reward is not None:
        return read_reward(reward, data).composition
    newest = ledger.composition()
    if newest is None:
        raise UserError(
            "no grader has said what this run's reward is made of",
            value=ledger.address,
            fix="name a reward with --reward FILE",
        )
    return Composition.model_validate(newest[1])


def _counts(subjects: list[Subject]) -> dict[str, int]:
    """How many answers there are of each making."""
    found: dict[str, int] = {}
    for name in _makings(subjects):
        found[name] = found.get(name, 0) + 1
    return found


def _makings(subjects: list[Subject]) -> Iterator[str]:
    for subject in subjects:
        if subject.made is None:
            yield "stored rollouts"
        elif subject.against is not None:
            yield "attacks"
        else:
            yield subject.made
