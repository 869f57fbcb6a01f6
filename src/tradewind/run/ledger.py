"""`tradewind ledger`: prove what a run's record says of it; free what it does not need."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tradewind.ledger.audit import AuditReport
from tradewind.ledger.collect import GRACE_S
from tradewind.ledger.ledger import Ledger
from tradewind.rewards.compose import compose
from tradewind.run.ledgers import ledgers_of
from tradewind.run.options import AsJson, Run

VIOLATED = 1
CROSS = "\N{MULTIPLICATION X}"
NAMED = 12
"""Names of one kind that are printed with their counts."""
SHOWN = 50
"""Violations of one check that are printed; `--json` has them all."""

app = typer.Typer(help="Prove what a run's record says of it.", no_args_is_help=True)


@app.command()
def audit(run: Run, as_json: AsJson = False) -> None:
    """Check that no prompt was skipped, no group trained twice, and where each gradient came from.

    Exit code 1 if anything is violated; each violation is a sentence.
    """
    reports = [_read(place) for place in ledgers_of(run)]
    if as_json:
        found = [
            {**report.model_dump(), "sound": report.sound, "violations": report.violations}
            for report in reports
        ]
        print(json.dumps(found))
    else:
        for report in reports:
            _print(report)
    if not all(report.sound for report in reports):
        raise typer.Exit(VIOLATED)


@app.command()
def collect(
    run: Run,
    grace_hours: Annotated[
        float, typer.Option(min=0.0, help="Younger ones are left alone.")
    ] = GRACE_S / 3600,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Delete nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete token payloads that no record of the run names."""
    found = []
    for place in ledgers_of(run):
        with Ledger.open(place) as ledger:
            found.append(ledger.collect_payloads(grace_hours * 3600, dry_run=dry_run))
    if as_json:
        print(json.dumps([one.model_dump() for one in found]))
        return
    for one in found:
        done = "deleted" if one.deleted else "would be deleted"
        young = f", {one.young} unused ones are too young" if one.young else ""
        size = f"{one.unused_bytes} bytes"
        print(f"{one.place}: {one.unused} payloads ({size}) {done}, {one.kept} are needed{young}")


def _read(place: str) -> AuditReport:
    with Ledger.open(place) as ledger:
        return ledger.audit_report(compose)


def _names(counts: dict[str, int]) -> str:
    """`paris (233), oregon (298)`; of many numbers only the ends."""
    if len(counts) > NAMED and all(name.isdigit() for name in counts):
        numbers = sorted(map(int, counts))
        return f"{len(numbers)} of {numbers[0]} to {numbers[-1]}"
    return ", ".join(f"{name} ({n})" for name, n in counts.items())


def _print(report: AuditReport) -> None:
    console = Console()
    table = Table(title=f"audit of {report.run}", caption=report.ledger, title_style="bold")
    table.add_column("")
    table.add_column("what must hold")
    table.add_column("promise", justify="center")
    table.add_column("what was looked at")
    for check in report.checks:
        broken = len(check.violations)
        mark = f"[bold red]{broken} {CROSS}" if broken else "[green]\N{CHECK MARK}"
        table.add_row(mark, check.name, check.promise, check.counted)
    console.print(table)
    if any(report.trained_by.values()):
        origin = Table(title="what was trained came from", title_style="bold")
        for column in ("", "rollouts of each"):
            origin.add_column(column)
        for what, names in report.trained_by.items():
            origin.add_row(what, _names(names))
        console.print(origin)
    for check in report.checks:
        for sentence in check.violations[:SHOWN]:
            console.print(Text(f"{CROSS} {sentence}", style="red"), soft_wrap=True)
        if (rest := len(check.violations) - SHOWN) > 0:
            console.print(Text(f"{CROSS} and {rest} more of: {check.name}", style="red"))
    verdict = "[green]the run is sound" if report.sound else "[bold red]the run is not sound"
    console.print(verdict)
