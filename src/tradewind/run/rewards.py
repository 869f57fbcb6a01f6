"""`tradewind rewards`: what a run's reward is made of, and what the monitor finds.

`rank` and `rescore` are in `ladder.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tradewind.rewards.config import Composition
from tradewind.rewards.monitor.exploits import Exploits, ExploitsOptions
from tradewind.rewards.monitor.planted import INNOCENT, Tally, measure, planted, total
from tradewind.rewards.panel import Panel
from tradewind.rewards.trust.statistics import wilson
from tradewind.run.components import ComponentReading, changes, read_components
from tradewind.run.ladder import rank, rescore_run
from tradewind.run.ledgers import open_ledger
from tradewind.run.options import AsJson, Run, RunFolder
from tradewind.run.reward_file import read_reward
from tradewind.run.workspace import Workspace
from tradewind.types import UserError

app = typer.Typer(
    help="What the reward is made of, what could serve in it, and who cheats.",
    no_args_is_help=True,
)
app.command()(rank)
app.command("rescore")(rescore_run)


@app.command()
def use(
    run: RunFolder,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A recipe, or a file with a table signals.")
    ],
) -> None:
    """Put another reward in use while the run goes on.

    Groups that have begun to be graded keep theirs; all later ones get this one.
    """
    composition = _anchored(read_reward(file, Workspace(run).data).composition, file.parent)
    with open_ledger(str(run)) as ledger:
        panel = Panel(composition)
        try:
            panel.check(ledger.tasks())
        finally:
            panel.close()
        changed = ledger.use_composition(composition.version, composition.model_dump(mode="json"))
    names = ", ".join(signal.name for signal in composition.signals)
    said = "from the next group on" if changed else "it is in use already"
    print(f"reward {composition.version}: {names} ({said})")


@app.command()
def show(run: Run, as_json: AsJson = False) -> None:
    """What each component of the reward did, step by step, and where the reward was changed."""
    with open_ledger(run) as ledger, ledger.read() as conn:
        readings = read_components(conn)
    if as_json:
        print(json.dumps([reading.model_dump() for reading in readings]))
        return
    Console().print(_components_table(readings))


@app.command()
def restore(
    run: Run,
    tasks: Annotated[
        list[str] | None, typer.Argument(metavar="TASK...", help="All that are set aside if none.")
    ] = None,
) -> None:
    """Draw tasks again that were set aside: exploits were caught on them, or they were invalid."""
    with open_ledger(run) as ledger:
        restored = ledger.restore_tasks(tasks or None)
    print(f"drawn again: {', '.join(restored) or 'none, none of these was set aside'}")


@app.command()
def monitor(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="A run: what was caught in it.")
    ] = None,
    self_test: Annotated[
        bool, typer.Option("--self-test", help="Recall and false alarms on planted trajectories.")
    ] = False,
    rules: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Rules of your own, beside the built-in.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the planted names and hashes.")] = 0,
    as_json: AsJson = False,
) -> None:
    """What the monitor of exploits has caught in a run, or how much of what is planted it finds."""
    if self_test == (run is not None):
        raise UserError(
            "the monitor needs to know what to look at", fix="give either RUN or --self-test"
        )
    if self_test:
        tallies = measure(Exploits(ExploitsOptions(rules=rules)).score, planted(seed))
        if as_json:
            print(json.dumps(list(_rows(tallies))))
        else:
            Console().print(_tally_table(tallies))
        return
    assert run is not None
    with open_ledger(run) as ledger:
        caught = [e for e in ledger.events(limit=100_000) if e.kind == "rollout.caught"]
        aside, used = ledger.set_aside(), ledger.composition()
    signals = () if used is None else Composition.model_validate(used[1]).signals
    watching = any(signal.use == "exploits" for signal in signals)
    if as_json:
        print(json.dumps({"caught": [e.model_dump() for e in caught], "set_aside": aside}))
        return
    for event in caught:
        print(f"{event.subject}  {event.detail}")
    for task, cause in aside.items():
        print(f"task {task} is set aside: {cause}")
    if not caught:
        watched = "" if watching else ", and nothing watches: no signal of the reward is `exploits`"
        print(f"nothing was caught{watched}")


def _anchored(composition: Composition, folder: Path) -> Composition:
    """With the files that it names by a path from its own folder named absolutely.

    The grader reads them, and works in another folder.
    """

    def anchor(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: anchor(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [anchor(inner) for inner in value]
        if isinstance(value, str):
            file, colon, name = value.partition(":")
            if file and (folder / file).is_file():
                return f"{(folder / file).resolve()}{colon}{name}"
        return value

    signals = [
        {**signal.model_dump(), "use": anchor(signal.use), "options": anchor(signal.options)}
        for signal in composition.signals
    ]
    return Composition.model_validate({"signals": signals})


def _components_table(readings: list[ComponentReading]) -> Table:
    changed = set(changes(readings))
    table = Table(title="components of the reward", title_style="bold")
    for column in ("step", "component", "role"):
        table.add_column(column)
    for column in ("weight", "mean", "adds", "n", "null"):
        table.add_column(column, justify="right")
    last = None
    for reading in readings:
        if reading.step in changed and reading.step != last:
            table.add_section()
            table.add_row(str(reading.step), f"now {reading.composition}")
        mean = "" if reading.mean is None else f"{reading.mean:.3f}"
        adds = "" if reading.adds is None else f"{reading.adds:+.3f}"
        table.add_row(
            str(reading.step) if reading.step != last else "",
            reading.name,
            reading.role,
            f"{reading.weight:g}",
            mean,
            adds,
            str(reading.n),
            str(reading.nulls or ""),
        )
        last = reading.step
    return table


def _rows(tallies: dict[tuple[str, str], Tally]) -> Iterator[dict[str, Any]]:
    """Counts with Wilson intervals: each class and style, then the sums."""
    exploits = {key: tally for key, tally in tallies.items() if key[0] != INNOCENT}
    styles = dict.fromkeys(style for _, style in exploits)
    sums = {
        ("all exploits", style): total(t for (_, s), t in exploits.items() if s == style)
        for style in styles
    }
    sums["all exploits", "all"] = total(exploits.values())
    innocent = {key: tally for key, tally in tallies.items() if key[0] == INNOCENT}
    sums["all innocent", "all"] = total(innocent.values())
    for (exploit, style), tally in {**exploits, **innocent, **sums}.items():
        yield {
            "class": exploit,
            "style": style,
            "n": tally.n,
            "suspected": tally.suspected,
            "suspected_interval": list(wilson(tally.suspected, tally.n)),
            "caught": tally.caught,
            "caught_interval": list(wilson(tally.caught, tally.n)),
        }


def _tally_table(tallies: dict[tuple[str, str], Tally]) -> Table:
    table = Table(
        title="the monitor on planted trajectories",
        title_style="bold",
        caption="share [95 % interval]; suspected: severity 0.5 or more, caught: 1. Rules and "
        "trajectories have one author, so a recall here is an upper bound.",
    )
    table.add_column("class")
    table.add_column("style, or what it looks like")
    for column in ("n", "suspected", "caught"):
        table.add_column(column, justify="right")
    for row in _rows(tallies):
        if row["class"].startswith("all ") and row["style"] in ("plain", "all"):
            table.add_section()
        table.add_row(
            row["class"],
            row["style"],
            str(row["n"]),
            _share(row, "suspected"),
            _share(row, "caught"),
        )
    return table


def _share(row: dict[str, Any], what: str) -> str:
    low, high = row[f"{what}_interval"]
    return f"{row[what]} = {row[what] / row['n']:.0%} [{100 * low:.0f}, {100 * high:.0f}]"
