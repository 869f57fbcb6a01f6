"""`tradewind status`: processes, and who waits for whom."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table

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
    return Group(panel(snapshot), table)
