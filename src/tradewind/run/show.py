"""`tradewind status`: processes, and who waits for whom."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tradewind.ledger.nulls import NullRate
from tradewind.run.live import clock, panel
from tradewind.run.snapshot import SILENT_S, Snapshot


def status_table(snapshot: Snapshot) -> RenderableType:
    """The live panel once, and below it every process."""
    table = Table(box=None, padding=(0, 2), header_style="dim")
    for column in ("process", "does", "waits for", "owner", "since"):
        table.add_column(column)
    for beat in snapshot.beats:
        age = snapshot.at - beat.at
        doing = beat.doing if age < SILENT_S else f"silent for {clock(age)} ({beat.doing})"
        since = clock(snapshot.at - beat.since)
        table.add_row(beat.process, doing, beat.waiting_for or "", beat.owner or "", since)
    parts: list[RenderableType] = [panel(snapshot), table]
    if snapshot.paused is not None:
        why = f"training is {snapshot.paused.sentence}"
        parts.append(Text(f"{why}; to go on: tradewind trust resume RUN", style="bold red"))
    for judge in snapshot.judges:
        line = f"judge of {judge.signal}: {judge.state}, weight x {judge.factor:g}"
        style = "red" if judge.faults else "dim"
        parts.append(Text(f"{line}, {'; '.join(judge.reasons)}", style=style))
    for signal, said in snapshot.judges_away.items():
        parts.append(Text(f"judge of {signal}: {said}", style="red"))
    if snapshot.nulls_by_task:
        parts.append(nulls_table(snapshot.nulls_by_task))
    for task, cause in snapshot.tasks_set_aside.items():
        parts.append(Text(f"task {task} is set aside: {cause}", style="yellow"))
    return Group(*parts)


def nulls_table(rates: Sequence[NullRate]) -> Table:
    """The tasks whose rollouts could not be graded, worst first."""
    table = Table(box=None, padding=(0, 2), header_style="dim")
    for column in ("task", "nulls", "of", "after an answer", "causes", "the last one"):
        table.add_column(
            column, justify="left" if column[0] in "t" or "cause" in column else "right"
        )
    for rate in rates:
        causes = ", ".join(f"{count} {cause}" for cause, count in rate.causes.items())
        numbers = (f"{rate.nulls} ({rate.rate:.0%})", str(rate.rollouts), str(rate.after_answer))
        table.add_row(rate.task_id, *numbers, causes, rate.last[:80])
    return table
