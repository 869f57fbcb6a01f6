"""The command line. What a person wrote that cannot work is one sentence and exit code 2."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

import tradewind
from tradewind.run import criteria, env, ledger, rewards, tasks, tenants, trust, weights
from tradewind.run.launcher import Launch, launch, put_aside
from tradewind.run.live import ViewKind, open_view
from tradewind.run.options import AsJson, RunFolder
from tradewind.run.recipe import read_recipe
from tradewind.run.resolved import write_toml
from tradewind.run.rollouts import show_rollouts
from tradewind.run.show import status_table
from tradewind.run.snapshot import take_snapshot, with_details
from tradewind.run.stages import read_stages
from tradewind.run.summary import result_sentence, result_table, write_summary
from tradewind.run.supervisor import ProcessFailed
from tradewind.run.workspace import Workspace
from tradewind.types import TradewindError, UserError

USER_ERROR, FAILED, INTERRUPTED = 2, 1, 130

RUN, REWARDS, RECORDS, CUSTOMERS, PROCESSES = (
    "A run",
    "What is rewarded, and who says so",
    "Records and weights",
    "Environments and customers",
    "One process, where you want it",
)
"""Panels of `tradewind --help`, in the order in which one needs them."""

app = typer.Typer(
    help="Train a language-model agent inside the product it will live in.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Runs = Annotated[Path, typer.Option("--runs", metavar="DIR", help="Where run folders lie.")]


@app.command(rich_help_panel=RUN)
def run(  # noqa: PLR0913  one parameter per option
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="A TOML file.")],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override, as in trainer.steps=3."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a run after any interruption.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Put an earlier run of this name aside.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print all keys, what they are; start nothing."),
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Log lines even on a terminal.")] = False,
    as_json: AsJson = False,
    runs: Runs = Path("runs"),
) -> None:
    """Play a recipe: mid-training, RL and evaluation, with all processes on this machine."""
    asked = Launch(recipe, tuple(overrides or ()), runs, resume)
    if dry_run:
        print(write_toml(read_recipe(recipe, asked.overrides, runs), explain=True))
        return
    if fresh:
        name = read_recipe(recipe, asked.overrides, runs).run.name
        put_aside(Workspace(runs / name))
    kind: ViewKind = "json" if as_json else "plain" if plain else "auto"
    view = open_view(kind)
    try:
        workspace = launch(asked, view)
    except KeyboardInterrupt:
        view.close()
        _end(f"interrupted; continue with: tradewind run {recipe} --resume", INTERRUPTED)
    finally:
        view.close()
    if not as_json:
        _print_summary(workspace)


@app.command(rich_help_panel=RUN)
def status(folder: RunFolder, as_json: AsJson = False) -> None:
    """Say what each process of a run does, and who waits for whom since when."""
    workspace = _workspace(folder)
    current = workspace
    if workspace.control.stages.exists() and workspace.control.has_ledger:
        main = read_stages(workspace.stages)
        if all(stage.finished_at is not None for stage in main.stages):
            current = workspace.control
    snapshot = with_details(current, take_snapshot(current))
    if as_json:
        print(snapshot.model_dump_json())
    else:
        Console().print(status_table(snapshot))


app.command("rollouts", rich_help_panel=RUN)(show_rollouts)


@app.command(rich_help_panel=RUN)
def report(folder: RunFolder, as_json: AsJson = False) -> None:
    """Write results.json and report.html again and print the table."""
    workspace = _workspace(folder)
    write_summary(read_recipe(workspace.recipe), workspace)
    if as_json:
        print(workspace.results.read_text(encoding="utf-8"))
    else:
        _print_summary(workspace)


@app.command(rich_help_panel=RUN)
def version() -> None:
    """Print the version."""
    print(tradewind.__version__)


app.add_typer(rewards.app, name="rewards", rich_help_panel=REWARDS)
app.add_typer(tasks.app, name="tasks", rich_help_panel=REWARDS)
app.add_typer(criteria.app, name="criteria", rich_help_panel=REWARDS)
app.add_typer(trust.app, name="trust", rich_help_panel=REWARDS)
app.add_typer(ledger.app, name="ledger", rich_help_panel=RECORDS)
app.add_typer(weights.app, name="weights", rich_help_panel=RECORDS)
app.add_typer(env.app, name="env", rich_help_panel=CUSTOMERS)
app.add_typer(tenants.app, name="tenants", rich_help_panel=CUSTOMERS)


def _delegate(part: str, summary: str, module: str | None = None) -> None:
    """A verb that starts one process; its options are its own."""

    def start(context: typer.Context) -> None:
        sys.argv = [f"tradewind {part}", *context.args]
        runpy.run_module(module or f"tradewind.{part}", run_name="__main__", alter_sys=False)

    start.__doc__ = summary
    settings = {"allow_extra_args": True, "ignore_unknown_options": True}
    context = {**settings, "help_option_names": []}
    app.command(part, context_settings=context, rich_help_panel=PROCESSES)(start)


for _part, _summary in {
    "controller": "Start the controller: groups, leases, staleness.",
    "gateway": "Start the gateway: the endpoint for agents and users.",
    "pool": "Start a pool: an engine that follows the weights.",
    "worker": "Start a worker: the customer's side, dials out only.",
    "grader": "Start the grader: verifiers, scores.",
    "trainer": "Start the trainer: mid-training or RL.",
    "relay": "Start a relay: the weight stream for the pools of a region.",
}.items():
    _delegate(_part, _summary)
_delegate(
    "push", "Have a customer's server play rollouts: signed calls.", "tradewind.worker.bridge"
)


def main() -> NoReturn:
    """Entry point of `tradewind` and `python -m tradewind`."""
    sys.exit(_guarded(app))


def _guarded(command: Callable[[], None]) -> int:
    try:
        command()
    except UserError as error:
        return _say(str(error), USER_ERROR)
    except ProcessFailed as error:
        return _say(str(error), USER_ERROR if error.user_error else FAILED)
    except TradewindError as error:
        return _say(str(error), FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("tradewind"):
            raise
        return _say(
            f"this needs {error.name!r}, which is not installed. "
            "Fix: pip install 'tradewind[train]'.",
            USER_ERROR,
        )
    return 0


def _say(sentence: str, code: int) -> int:
    print(f"tradewind: {sentence}", file=sys.stderr)
    return code


def _end(sentence: str, code: int) -> NoReturn:
    raise SystemExit(_say(sentence, code))


def _workspace(folder: Path) -> Workspace:
    workspace = Workspace(folder)
    if not workspace.stages.exists():
        raise UserError(
            "this is not the folder of a run, or it has not begun",
            value=str(folder),
            fix="give runs/<name>, as `tradewind run` made it",
        )
    return workspace


def _print_summary(workspace: Workspace) -> None:
    data = write_summary(read_recipe(workspace.recipe), workspace)
    console = Console()
    console.print(result_table(data))
    console.print(result_sentence(data.figures), highlight=False)
    if data.figures.get("groups.graded") and not data.figures["groups.mixed_share"]:
        console.print(
            "No group had two different rewards, so RL had nothing to learn from. See why: "
            f"tradewind rollouts {_shown(workspace.folder)}",
            style="bold yellow",
        )
    console.print(f"look at {_shown(workspace.report)}, figures in {_shown(workspace.results)}")


def _shown(file: Path) -> Path:
    here = Path.cwd()
    return file.relative_to(here) if file.is_absolute() and file.is_relative_to(here) else file
