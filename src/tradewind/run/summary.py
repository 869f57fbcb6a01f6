"""What a run leaves behind: results.json, report.html, heldout.svg, and the table at the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from tradewind.ledger.evals import PassRate
from tradewind.ledger.ledger import Ledger
from tradewind.run.charts import arm_words
from tradewind.run.components import ComponentReading, read_components
from tradewind.run.judged import judged_figures, read_curves
from tradewind.run.readings import StepReading, read_steps
from tradewind.run.recipe import Recipe
from tradewind.run.report import ReportData, duration, heldout_picture, page, rate_words
from tradewind.run.results import control_figures, main_figures, results_document
from tradewind.run.snapshot import read_losses
from tradewind.run.stages import read_stages
from tradewind.run.waits import read_waits
from tradewind.run.workspace import Workspace, write_atomic, write_json

Rates = dict[str, dict[str, PassRate]]
PARTS = ("all", "seen", "unseen")


def write_summary(recipe: Recipe, workspace: Workspace) -> ReportData:
    """Count, write the files, and return what the report shows; may be called at any time."""
    data = gather(recipe, workspace)
    write_json(workspace.results, results_document(data.figures))
    write_atomic(workspace.report, page(data))
    if data.rates:
        write_atomic(workspace.folder / "heldout.svg", heldout_picture(data))
    return data


def gather(recipe: Recipe, workspace: Workspace) -> ReportData:
    """Read both arms."""
    seconds, spans = _times(workspace)
    control_seconds: dict[str, float] = {}
    control_steps: list[StepReading] = []
    figures: dict[str, Any] = {}
    rates: Rates = {}
    if workspace.control.has_ledger:
        control_seconds, _ = _times(workspace.control)
        with Ledger.open(workspace.control.ledger) as ledger:
            figures |= control_figures(ledger, control_seconds)
            rates |= _rates(ledger)
            control_steps = _steps(ledger)
    seconds["total"] = sum(seconds.values()) + sum(control_seconds.values())
    with Ledger.open(workspace.ledger) as ledger:
        figures |= main_figures(ledger, seconds)
        curves = read_curves(ledger)
        figures |= judged_figures(ledger, curves)
        return ReportData(
            name=recipe.run.name,
            figures=figures,
            rates=rates | _rates(ledger),
            steps=_steps(ledger),
            control_steps=control_steps,
            components=_components(ledger),
            judged=curves,
            losses=read_losses(ledger),
            versions=ledger.versions(),
            swaps=ledger.attestations(),
            chats=ledger.user_chats(),
            stages=spans,
            waits=read_waits(workspace.folder / "waits.json"),
            max_staleness=recipe.trainer.max_staleness,
            returns=ledger.returns(),
        )


def result_table(data: ReportData) -> Table:
    """The table with which a run ends."""
    table = Table(
        title=f"{data.name}: held-out tasks passed, % [95 % interval]", title_style="bold"
    )
    table.add_column("", no_wrap=True)
    for column in ("n", "all kinds", "kinds in training", "kinds never seen"):
        table.add_column(column, justify="right", no_wrap=True)
    for arm, words in arm_words(data.rates).items():
        parts = data.rates[arm]
        cells = [rate_words(parts[part]).replace(" %", "") for part in PARTS]
        style = "bold green" if arm == "rl" else None
        table.add_row(words, str(parts["all"].n), *cells, style=style)
    return table


def result_sentence(figures: Mapping[str, Any]) -> str:
    """The other figures of a run, in one line."""
    parts = [f"{duration(figures['seconds.total'])} in all"]
    parts.append(f"{figures['rollouts.trained']} of {figures['rollouts.total']} rollouts trained")
    parts.append(f"staleness at most {figures['staleness.max']}")
    if shipped := figures["weights.bytes_shipped"]:
        parts.append(f"weights {figures['weights.bytes_full'] / shipped:.1f}x smaller than copies")
    if (median := figures["users.ttft_ms_p50"]) is not None:
        parts.append(f"users waited {median:.0f} ms (p99 {figures['users.ttft_ms_p99']:.0f} ms)")
    return ", ".join(parts)


def _times(workspace: Workspace) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
    """Active seconds, and start and end, of every stage that began."""
    seconds: dict[str, float] = {}
    spans: dict[str, tuple[float, float]] = {}
    for stage in read_stages(workspace.stages).stages:
        if stage.started_at is not None:
            seconds[stage.name] = stage.seconds
            spans[stage.name] = (stage.started_at, stage.finished_at or stage.started_at)
    return seconds, spans


def _steps(ledger: Ledger) -> list[StepReading]:
    with ledger.read() as conn:
        return read_steps(conn)


def _components(ledger: Ledger) -> list[ComponentReading]:
    with ledger.read() as conn:
        return read_components(conn)


def _rates(ledger: Ledger) -> Rates:
    rates: Rates = {}
    for name in ledger.evals():
        result = ledger.eval_result(name)
        if result.finished:
            rates[name] = {
                "all": result.overall,
                "seen": result.kinds_seen,
                "unseen": result.kinds_unseen,
            }
    return rates
