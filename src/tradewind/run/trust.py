"""`tradewind trust`: where judges stand and why, labels by people, pauses and ways back."""

from __future__ import annotations

import getpass
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from tradewind.ledger.ledger import Ledger
from tradewind.ledger.trust import Judge
from tradewind.run.comeback import go_back
from tradewind.run.label_queue import SHOWN, queue, written
from tradewind.run.ledgers import open_ledger
from tradewind.run.options import AsJson, Run
from tradewind.types import Json, UserError
from tradewind.types.trust import PERSON, Label, Pause, Standing

_NO_LABELS = (
    "nobody says the truth yet: name a verifier in [grader.probes] truth, or label rollouts "
    "(tradewind trust sample RUN --out FILE)"
)
_SHOWN_BOUNDS = (
    "probation_bound",
    "trusted_bound",
    "trusted_usable",
    "min_labels",
    "bias",
    "null_rate",
)


class _ShowsByDefault(TyperGroup):
    """`tradewind trust RUN` is `tradewind trust show RUN`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["show", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_ShowsByDefault,
    help="Where judges stand: `tradewind trust RUN` prints it.",
    no_args_is_help=True,
)


@app.command()
def show(run: Run, as_json: AsJson = False) -> None:
    """Print every judge's state, the bounds that decided it, and what it was held against."""
    with open_ledger(run) as ledger:
        rows = [(judge, ledger.standing(judge.signal, judge.version)) for judge in ledger.judges()]
        paused = ledger.paused()
        away = {signal: event.detail for signal, event in ledger.judges_away().items()}
    if as_json:
        found = [_as_json(judge, standing) for judge, standing in rows]
        pause = None if paused is None else paused.model_dump()
        print(json.dumps({"judges": found, "paused": pause, "away": away}))
        return
    console = Console()
    if paused is not None:
        console.print(f"[bold red]training is[/] {paused.sentence}", highlight=False)
    if not rows:
        console.print("no judge has been asked in this run")
        return
    for judge, standing in rows:
        for line in judge_lines(judge, standing, away.get(judge.signal)):
            console.print(line, highlight=False)
    held = next((s.thresholds for _, s in rows if s is not None), {})
    shown = ", ".join(f"{name} {held[name]}" for name in _SHOWN_BOUNDS if name in held)
    console.print(f"held against: {shown} (all of them with --json)", highlight=False)


@app.command()
def label(
    run: Run,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines, one label each.")],
) -> None:
    """Add labels by people: {"rollout_id", "signal", "rater", "value"} on each line.

    Also "sampling": "random" (default) or "disagreement"; "source": "person" (default) or "model".
    A rater's first label on a rollout stands.
    """
    labels, empty = read_labels(file)
    with open_ledger(run) as ledger:
        known = {judge.signal for judge in ledger.judges()}
        for found in labels:
            if found.signal not in known:
                raise UserError(
                    "a label is for a signal that no judge of this run decides",
                    value=found.signal,
                    fix=f"use one of {', '.join(sorted(known)) or 'none: no judge was asked yet'}",
                )
        added = ledger.add_labels(labels)
    left = f", {empty} lines have no value yet" if empty else ""
    print(f"{added} labels added, {len(labels) - added} were there already{left}")


@app.command()
def sample(
    run: Run,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where the queue goes.")],
    signal: Annotated[str, typer.Option(help="The judged signal, if there are several.")] = "",
    n: Annotated[int, typer.Option("-n", min=1, help="Rollouts to label.")] = 40,
    random_share: Annotated[float, typer.Option(min=0, max=1, help="Share drawn by lot.")] = 0.75,
    rater: Annotated[str, typer.Option(help="Who will label; default: your user name.")] = "",
) -> None:
    """Write a queue of rollouts to label: fill in "value", then `tradewind trust label RUN FILE`.

    Some are drawn by lot, and bounds are made of these; the others are where judges contradict each
    other or are near the bar. The judge's verdicts are not in the file.
    """
    with open_ledger(run) as ledger:
        judge = _judge_of(ledger, signal)
        who = rater or getpass.getuser()
        lines = list(queue(ledger, judge, rater=who, n=n, random_share=random_share))
    if not lines:
        print(f"nothing more to label for {who} on {judge.signal} now")
        return
    print(f"{out}: {written(lines, out)}")
    print(f'fill in "value" (1 or 0), then: tradewind trust label {run} {out}')


@app.command()
def pause(
    run: Run,
    why: Annotated[str, typer.Option(help="Shown to everybody who waits.")] = "to look at it",
) -> None:
    """Let training stand still: nothing is opened, leased or trained until `resume`."""
    who = getpass.getuser()
    with open_ledger(run) as ledger:
        made = Pause(alarm=PERSON, cause=f"{why} ({who})", at=time.time())
        done = ledger.pause_training(made)
    print("training stands still" if done else "training was paused already")


@app.command("return")
def return_to(
    run: Run,
    version: Annotated[
        int | None,
        typer.Argument(
            min=0, metavar="[VERSION]", help="Default: where an alarm has sent the pools back to."
        ),
    ] = None,
    why: Annotated[str, typer.Option(help="Kept on record.")] = "by hand",
    wait: Annotated[float, typer.Option(help="How long to wait for the trainer, in s.")] = 600.0,
) -> None:
    """Take the trainer back to an earlier version, and pause training until `resume`.

    What came after it is withdrawn: what that sampled is not trained, its prompts are drawn again.
    AdamW begins anew.
    """
    with open_ledger(run) as ledger:
        done = go_back(ledger, version, why, wait)
        pools = sum(report.version == done.version for report in ledger.pools())
    print(f"{done.sentence}; {pools} pools serve it already")
    print(f"training stands still until: tradewind trust resume {run}")


@app.command()
def resume(run: Run) -> None:
    """Let training go on after a pause; pools follow the newest version again."""
    with open_ledger(run) as ledger:
        pause = ledger.resume_training(time.time(), getpass.getuser())
    said = "was not paused" if pause is None else f"goes on; it was paused by {pause.who}"
    print(f"training {said}")


def _judge_of(ledger: Ledger, signal: str) -> Judge:
    known = {judge.signal: judge for judge in ledger.judges()}
    if not signal and len(known) == 1:
        return next(iter(known.values()))
    if signal not in known:
        raise UserError(
            "no judge of this run decides that signal" if signal else "which judge is it about?",
            value=signal,
            fix=f"--signal {' or '.join(known)}" if known else "no judge was asked yet",
        )
    return known[signal]


def read_labels(file: Path) -> tuple[list[Label], int]:
    """The labels of a file, and how many of its lines have none yet; raises `UserError` that names
    the line.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UserError(
            f"the file of labels cannot be read ({error.strerror})",
            value=str(file),
            fix="give a file of JSON lines",
        ) from error
    read = [_label(line, number) for number, line in enumerate(lines, start=1) if line.strip()]
    labels = [label for label in read if label is not None]
    return labels, len(read) - len(labels)


def judge_lines(judge: Judge, standing: Standing | None, away: str | None) -> list[RenderableType]:
    """State and reasons, what labels say if there are any, and how to get some if there are none;
    and why it is not asked, if it is not.

    It fits into 80 columns.
    """
    state = "unknown" if standing is None else standing.state.value
    factor = 0.0 if standing is None else standing.factor
    who = judge.about.get("model")
    asked = f" ({who})" if who else ""
    lines: list[RenderableType] = [Text(f"{judge.signal}{asked}: {state}, weight x {factor:g}")]
    if away is not None:
        lines.append(Padding(Text(away, style="red"), (0, 0, 0, 2)))
    for reason in () if standing is None else standing.reasons:
        lines.append(Padding(Text(reason), (0, 0, 0, 2)))
    agreement = {} if standing is None else _agreements(standing)
    if agreement:
        lines.append(Padding(_labels_table(agreement), (0, 0, 0, 2)))
    elif judge.truth is None:
        lines.append(Padding(Text(_NO_LABELS, style="dim"), (0, 0, 0, 2)))
    return lines


def _labels_table(agreement: Mapping[str, Json]) -> Table:
    """One row per source of labels; a dash where nothing is known."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("labels by", "n", "base", "sens. (bound)", "spec. (bound)"):
        table.add_column(column)
    for column in ("kappa", "AC1", "signal left"):
        table.add_column(column)
    for source, found in agreement.items():
        table.add_row(source, *_cells(found))
    return table


def _agreements(standing: Standing) -> dict[str, Json]:
    return dict(standing.measures.get("agreement", {}))


def _cells(found: Json) -> list[str]:
    return [
        str(found["labels"]),
        _number(found["base_rate"]),
        f"{_number(found['sensitivity'])} ({_number(found['sensitivity_bound'])})",
        f"{_number(found['specificity'])} ({_number(found['specificity_bound'])})",
        _number(found["kappa"]),
        _number(found["ac1"]),
        _number(found["usable_signal"]),
    ]


def _number(value: Any) -> str:
    return "\N{EN DASH}" if value is None else f"{value:.2f}"


def _as_json(judge: Judge, standing: Standing | None) -> Json:
    return {
        **judge.model_dump(mode="json"),
        "standing": None if standing is None else standing.model_dump(mode="json"),
    }


def _label(line: str, number: int) -> Label | None:
    """None where a line of a queue is still to be filled in."""
    try:
        data = json.loads(line)
        if not isinstance(data, dict):
            raise ValueError("not a JSON object")
        if SHOWN in data and data.pop(SHOWN) is not None and data.get("value") is None:
            return None
        return Label.model_validate({"at": time.time(), **data})
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(map(str, fault["loc"]))
        said = f"{where}: {fault['msg']}"
        raise _wrong_line(said, line, number) from error
    except ValueError as error:
        raise _wrong_line(str(error), line, number) from error


def _wrong_line(fault: str, line: str, number: int) -> UserError:
    return UserError(
        f"line {number} is no label ({fault})",
        value=line[:120],
        fix='write {"rollout_id": "g000001-r0", "signal": "tone", "rater": "ana", "value": 1}',
    )
