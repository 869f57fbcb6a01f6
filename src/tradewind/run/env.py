"""`tradewind env`: serve an environment in push mode, and check any implementation of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
import uvicorn
from rich.console import Console
from rich.table import Table

from tradewind.envs import serve as serving
from tradewind.envs.check.examine import Finding, Verdict, chosen, examine
from tradewind.envs.check.model import CheckModel
from tradewind.envs.check.subject import Limits, Subject
from tradewind.envs.signature import parse_keys
from tradewind.envs.taskset import load_tasks
from tradewind.http.listening import listen_at, quiet
from tradewind.run.options import AsJson
from tradewind.types import UserError

KEY_VARIABLE = "TRADEWIND_PUSH_KEY"
FAILED = 1
_START_S = 60.0
_COLOURS = {Verdict.PASSED: "green", Verdict.FAILED: "red", Verdict.SKIPPED: "yellow"}
_MARKS = {Verdict.PASSED: "✓", Verdict.FAILED: "✗", Verdict.SKIPPED: "-"}

app = typer.Typer(
    help="Environments: serve one in push mode, check any implementation.", no_args_is_help=True
)

_OWN_OPTIONS = {"allow_extra_args": True, "ignore_unknown_options": True}


@app.command(context_settings={**_OWN_OPTIONS, "help_option_names": []})
def serve(context: typer.Context) -> None:
    """Serve a rollout function in push mode."""
    raise typer.Exit(serving.main(context.args))


@app.command()
def check(  # noqa: PLR0913  one parameter per option
    target: Annotated[
        str, typer.Argument(metavar="URL|ENV", help="A server's base URL, or my_env.py[:name].")
    ],
    task: Annotated[
        str, typer.Option(metavar="JSON", help="The input of a task it can play.")
    ] = "{}",
    tasks: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Take the first task of a taskset.")
    ] = None,
    reply: Annotated[str, typer.Option(help="What the model says to everything.")] = "ok",
    only: Annotated[list[str] | None, typer.Option(help="Run this check; repeat it.")] = None,
    patience: Annotated[float, typer.Option(help="Seconds for what has to come.")] = 30.0,
    settle: Annotated[float, typer.Option(help="Seconds after which nothing may follow.")] = 3.0,
    lease: Annotated[float, typer.Option(help="lease_s of the rollout that is left alone.")] = 2.0,
    model_listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where our model endpoint listens.")
    ] = "127.0.0.1:0",
    model_url: Annotated[
        str | None, typer.Option(metavar="URL", help="How the server reaches it, /v1 included.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check an environment: a file of yours, or a server in whatever language.

    Exit status 0 if all checks held, 1 if one did not.
    """
    asked = Asked(
        target=target,
        task=_task(task, tasks),
        reply=reply,
        only=tuple(only or ()),
        limits=Limits(patience_s=patience, settle_s=settle, lease_s=lease),
        model_listen=model_listen,
        model_url=model_url,
    )
    chosen(asked.only)
    view = _View(plain=as_json)
    with view.watched():
        findings = asyncio.run(_check(asked, view))
    if as_json:
        print(json.dumps(_summary(target, findings)))
    else:
        view.show(target, findings)
    raise typer.Exit(FAILED if any(f.verdict is Verdict.FAILED for f in findings) else 0)


@dataclass(frozen=True)
class Asked:
    """What the command line says."""

    target: str
    task: dict[str, Any]
    reply: str
    only: tuple[str, ...]
    limits: Limits
    model_listen: str
    model_url: str | None


class _View:
    """Tells how far it is, then shows the table. On a terminal the former leaves no trace."""

    def __init__(self, *, plain: bool) -> None:
        self._console = Console(stderr=plain, quiet=plain)
        self._status = self._console.status("starting the environment")
        self._ended = 0

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """While checks run."""
        with self._status:
            yield

    def tell(self, finding: Finding) -> None:
        self._ended += 1
        said = f"{_MARKS[finding.verdict]} {finding.name}"
        self._status.update(f"{self._ended} checks done, the last one {said}")

    def show(self, target: str, findings: list[Finding]) -> None:
        table = Table(title=f"tradewind env check {target}", title_justify="left", show_lines=False)
        for column in ("", "check", "what holds", "s"):
            table.add_column(column, justify="right" if column == "s" else "left")
        group = None
        for finding in findings:
            if finding.group != group:
                group = finding.group
                table.add_section()
                table.add_row("", f"[bold]{group}[/]", "", "")
            colour = _COLOURS[finding.verdict]
            claim = finding.claim
            if finding.detail:
                claim += f"\n[{colour}]{finding.detail}[/]"
            mark = f"[{colour}]{_MARKS[finding.verdict]}[/]"
            table.add_row(mark, finding.name, claim, f"{finding.seconds:.1f}")
        self._console.print(table)
        counts = _summary(target, findings)
        self._console.print(
            f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped"
        )


async def _check(asked: Asked, view: _View) -> list[Finding]:
    model = CheckModel(asked.reply)
    with _target(asked.target) as (url, key):
        async with _model_at(model, asked) as model_url, httpx.AsyncClient(trust_env=False) as http:
            subject = Subject(
                url=url.rstrip("/"),
                key=key,
                model=model,
                model_url=model_url,
                task=asked.task,
                http=http,
                limits=asked.limits,
            )
            return await examine(subject, asked.only, view.tell)


@contextlib.contextmanager
def _target(target: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """The server's URL and the key to sign with; a Python environment is served by a child."""
    if target.startswith(("http://", "https://")):
        keys = parse_keys(os.environ.get(KEY_VARIABLE, ""), KEY_VARIABLE)
        yield target, next(iter(keys.items()))
        return
    key = ("check", secrets.token_urlsafe(24))
    argv = [sys.executable, "-m", "tradewind.envs.serve", target, "--port", "0"]
    env = {**os.environ, serving.KEYS_VARIABLE: ":".join(key)}
    child = subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, text=True)
    try:
        yield _ready_url(child, target), key
    finally:
        child.terminate()
        child.communicate(timeout=_START_S)


def _ready_url(child: subprocess.Popen[str], target: str) -> str:
    """What the child's log says; raises `UserError` with its last line if it ends first."""
    assert child.stderr is not None
    last = "nothing said"
    for line in child.stderr:
        last = line.strip() or last
        if "ready at " in line:
            return line.rpartition("ready at ")[2].strip()
    what, _, fix = last.partition(". Fix: ")
    if fix:  # it said what is wrong in the form that we use, too
        raise UserError(what, fix=fix.rstrip("."))
    raise UserError(f"the environment cannot be served ({last})", value=target, fix="correct it")


@contextlib.asynccontextmanager
async def _model_at(model: CheckModel, asked: Asked) -> AsyncIterator[str]:
    """Our model endpoint, served; its base URL."""
    listener = listen_at(
        asked.model_listen, what="the model endpoint", fix="give --model-listen HOST:PORT"
    )
    here = "http://{}:{}/v1".format(*listener.getsockname()[:2])
    server = uvicorn.Server(quiet(model.app(), grace_s=1))
    running = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield asked.model_url or here
    finally:
        server.should_exit = True
        await running


def _task(text: str, tasks: Path | None) -> dict[str, Any]:
    if tasks is not None:
        return load_tasks(tasks)[0].input
    try:
        found = json.loads(text)
    except ValueError as error:
        raise UserError(f"--task is no JSON ({error})", value=text, fix="quote it") from error
    if not isinstance(found, dict):
        raise UserError("--task is no JSON object", value=text, fix="write '{...}'")
    return found


def _summary(target: str, findings: list[Finding]) -> dict[str, Any]:
    counts = {v.value: sum(f.verdict is v for f in findings) for v in Verdict}
    return {"target": target, **counts, "checks": [f.model_dump(mode="json") for f in findings]}
