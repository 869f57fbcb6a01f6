"""`tradewind criteria`: find what is hard to judge in criteria files, and try a judge on their
examples.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tradewind.rewards.criteria.criterion import Criterion, Rubric
from tradewind.rewards.criteria.exhibit import Exhibit
from tradewind.rewards.criteria.file import read_rubric
from tradewind.rewards.criteria.lint import lint as find_doubts
from tradewind.rewards.criteria.recipe import signal_tables
from tradewind.rewards.criteria.trial import Row, Share, Summary, summarise, try_criterion
from tradewind.rewards.judges.options import JudgeOptions
from tradewind.rewards.judges.settled import Judgement, without_a_judge
from tradewind.rewards.judges.shared import give_back, open_judge
from tradewind.run.options import AsJson
from tradewind.types import UserError

FAILED = 1
STORE = "{data}/judge.sqlite"
_EARNED = """# A judge has weight 0 until labels say that it can be believed. People label with
# `tradewind trust label`; a verifier of the same reward that is no gate labels by itself:
# [grader.probes]
# truth = {{ {first} = "NAME OF THE VERIFIER" }}"""
"""In a recipe: the run's data folder."""

app = typer.Typer(
    help="Criteria files: find what is hard to judge, try a judge on the examples.",
    no_args_is_help=True,
)

Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Criteria files (TOML).")]
Url = Annotated[str, typer.Option("--judge-url", metavar="URL", help="Base URL, /v1 included.")]
Model = Annotated[str, typer.Option("--judge-model", metavar="NAME", help="Model to ask for.")]
KeyEnv = Annotated[
    str | None, typer.Option("--judge-key-env", metavar="NAME", help="Variable with its key.")
]


@app.command()
def lint(files: Files, as_json: AsJson = False) -> None:
    """Find criteria that are hard to judge or easy to cheat: exit status 1 if there are any."""
    found = [(file, finding) for file in files for finding in find_doubts(read_rubric(file))]
    if as_json:
        print(json.dumps([{"file": str(file), **one.model_dump()} for file, one in found]))
    else:
        for file, one in found:
            place = f"{file}: {one.criterion}" if one.criterion else str(file)
            print(f"{place}: {one.rule}: {one.what}. Fix: {one.fix}.")
        print(f"{len(found)} findings" if found else "nothing found")
    raise typer.Exit(FAILED if found else 0)


@app.command()
def test(  # noqa: PLR0913  one parameter per option
    files: Files,
    judge_url: Url = "",
    judge_model: Model = "",
    judge_key_env: KeyEnv = None,
    only: Annotated[list[str] | None, typer.Option(help="This criterion; repeat it.")] = None,
    store: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep verdicts here; asked once.")
    ] = None,
    max_calls: Annotated[int | None, typer.Option(help="Calls at most.")] = None,
    response_format: Annotated[
        str, typer.Option(help="json_object, json_schema (small judges need it) or text.")
    ] = "json_object",
    as_json: AsJson = False,
) -> None:
    """Have a judge answer every example: exit status 1 if it disagrees with an author."""
    logging.getLogger("judge").setLevel(logging.ERROR)  # the table says it
    options = _options(
        url=judge_url,
        model=judge_model,
        key_env=judge_key_env,
        store=store,
        max_calls=max_calls,
        response_format=response_format,
    )
    chosen = _chosen(files, only or [])
    rows = _try(chosen, options)
    summaries = [summarise(criterion, found) for (_, criterion), found in rows]
    flat = [row for _, found in rows for row in found]
    if as_json:
        about = {"judge": judge_model, "agrees": all(row.agrees for row in flat)}
        shown = [{**row.model_dump(), "agrees": row.agrees} for row in flat]
        print(json.dumps({**about, "rows": shown, "criteria": [s.model_dump() for s in summaries]}))
    else:
        _show(flat, summaries)
    raise typer.Exit(0 if all(row.agrees for row in flat) else FAILED)


@app.command()
def signals(
    files: Files, judge_url: Url = "", judge_model: Model = "", judge_key_env: KeyEnv = None
) -> None:
    """Print the grader.signals tables of a recipe for these files."""
    options = {"url": judge_url, "model": judge_model, "key_env": judge_key_env, "store": STORE}
    print("# Relative paths begin in the folder of the recipe.")
    judged: list[str] = []
    for file in files:
        rubric = read_rubric(file)
        judged += [criterion.id for criterion in rubric.criteria if criterion.checker is None]
        print(signal_tables(file, rubric, options))
    if judged:
        print(_EARNED.format(first=judged[0]))


def _options(**given: object) -> JudgeOptions:
    try:
        return JudgeOptions.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(
            f"the judge cannot be asked ({first['msg'].removeprefix('Value error, ')})",
            value=".".join(map(str, first["loc"])),
            fix="correct the option",
        ) from error


def _chosen(files: Sequence[Path], only: Sequence[str]) -> list[tuple[Rubric, Criterion]]:
    rubrics = [read_rubric(file) for file in files]
    found = [(rubric, criterion) for rubric in rubrics for criterion in rubric.criteria]
    unknown = [name for name in only if name not in {criterion.id for _, criterion in found}]
    if unknown:
        known = ", ".join(criterion.id for _, criterion in found)
        raise UserError("there is no such criterion", value=unknown[0], fix=f"use one of {known}")
    chosen = [pair for pair in found if not only or pair[1].id in only]
    if not any(criterion.examples for _, criterion in chosen):
        raise UserError(
            "there is no example to try",
            value=", ".join(map(str, files)),
            fix="write good and bad examples: good = [...], bad = [...]",
        )
    return chosen


def _try(
    chosen: list[tuple[Rubric, Criterion]], options: JudgeOptions
) -> list[tuple[tuple[Rubric, Criterion], list[Row]]]:
    needed = any(c.examples and c.checker is None for _, c in chosen)
    if needed and not (options.url and options.model):
        raise UserError(
            "these criteria need a judge",
            fix="give --judge-url and --judge-model, or a checker in each criterion",
        )
    judge = open_judge(options) if needed else None

    def decide(rubric: Rubric, criterion: Criterion, exhibit: Exhibit) -> Judgement:
        if judge is not None:
            return judge.decide(rubric, criterion, exhibit)
        settled = without_a_judge(rubric, criterion, exhibit)
        assert settled is not None, "a checker settles everything"
        return settled

    try:
        with ThreadPoolExecutor(options.parallel) as threads:
            tried = threads.map(lambda pair: try_criterion(pair[0], pair[1], decide), chosen)
            return list(zip(chosen, tried, strict=True))
    finally:
        if judge is not None:
            give_back(options)


def _show(rows: Sequence[Row], summaries: Sequence[Summary]) -> None:
    table = Table(title="examples", title_justify="left")
    for column in ("", "criterion", "example", "author", "judge", "text", "why"):
        table.add_column(column, overflow="fold")
    for row in rows:
        mark = "[green]✓[/]" if row.agrees else "[red]✗[/]"
        author = "good" if row.good else "bad"
        judged = {True: "good", False: "bad", None: "null"}[row.judged_good]
        cells = (row.criterion, str(row.example), author, judged, row.excerpt, row.cause)
        table.add_row(mark, *map(escape, cells))
    console = Console()
    console.print(table)
    console.print(_summary_table(summaries))


def _summary_table(summaries: Sequence[Summary]) -> Table:
    table = Table(
        title="criteria",
        title_justify="left",
        caption="good found good, bad found bad: with 95 % bounds. constant: what always saying"
        " the same would agree",
        caption_justify="left",
    )
    for column in ("criterion", "agrees", "good found good", "bad found bad", "constant", "null"):
        table.add_column(column)
    for one in summaries:
        table.add_row(
            escape(one.criterion),
            f"{one.agreed} of {one.examples}",
            _bounds(one.sensitivity),
            _bounds(one.specificity),
            f"{one.constant:.0%}",
            str(one.nulls),
        )
    return table


def _bounds(share: Share) -> str:
    if share.n == 0:
        return "no examples"
    return f"{share.hits} of {share.n} ({share.low:.2f} to {share.high:.2f})"
