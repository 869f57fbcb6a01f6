"""`tradewind rollouts RUN [ROLLOUT]`: look at what the agent was asked, said and earned."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from sqlalchemy import func, select

from tradewind.ledger.ledger import Ledger
from tradewind.ledger.payloads import LostPayload
from tradewind.ledger.tables import credits, groups, outcomes, rollouts, tasks, turns
from tradewind.run.ledgers import open_ledger
from tradewind.run.options import AsJson, Run
from tradewind.types import Outcome, Record, Turn, UserError
from tradewind.types.group import Purpose
from tradewind.types.outcome import OutcomeStatus


class RolloutLine(Record):
    """One rollout that has ended, as the list shows it."""

    rollout_id: str
    task_id: str
    purpose: str
    """`train`, or the name of the evaluation."""
    version: int | None
    """Oldest weights that sampled it; None if no call was answered."""
    status: str
    reward: float | None
    """None: it is null, or its group is still open."""
    advantage: float | None
    said: str
    """What was handed in, or why there is nothing."""


def show_rollouts(
    run: Run,
    rollout: Annotated[
        str | None, typer.Argument(metavar="ROLLOUT", help="Show all of this one.")
    ] = None,
    last: Annotated[int, typer.Option(min=1, metavar="N", help="How many, newest first.")] = 20,
    evaluation: Annotated[
        str | None, typer.Option("--eval", metavar="NAME", help="Of an evaluation: base, rl, ...")
    ] = None,
    task: Annotated[str | None, typer.Option(metavar="ID", help="Of this task only.")] = None,
    as_json: AsJson = False,
) -> None:
    """Look at rollouts: what the agent was asked, what it said and what it earned."""
    console = Console()
    with open_ledger(run) as ledger:
        if rollout is not None:
            found = whole(ledger, rollout)
            console.print_json(data=found) if as_json else console.print(shown(found))
            return
        lines = newest(ledger, last, evaluation, task)
    if as_json:
        print(json.dumps([line.model_dump() for line in lines]))
    elif lines:
        console.print(listed(lines))
        console.print(f"one of them whole: tradewind rollouts {run} {lines[0].rollout_id}")
    else:
        console.print("no rollout of these has ended yet")


def newest(
    ledger: Ledger, n: int, evaluation: str | None = None, task: str | None = None
) -> list[RolloutLine]:
    """The last `n` rollouts that ended, newest first."""
    oldest = (
        select(turns.c.rollout_id, func.min(turns.c.oldest_version).label("version"))
        .group_by(turns.c.rollout_id)
        .subquery()
    )
    query = (
        select(
            *(rollouts.c.rollout_id, groups.c.task_id, groups.c.purpose, groups.c.eval_name),
            *(oldest.c.version, outcomes.c.status, outcomes.c.detail, outcomes.c.reported),
            *(credits.c.reward, credits.c.advantage),
        )
        .join(groups, groups.c.group_id == rollouts.c.group_id)
        .join(outcomes, outcomes.c.rollout_id == rollouts.c.rollout_id)
        .outerjoin(oldest, oldest.c.rollout_id == rollouts.c.rollout_id)
        .outerjoin(credits, credits.c.rollout_id == rollouts.c.rollout_id)
        .order_by(outcomes.c.at.desc())
        .limit(n)
    )
    if evaluation is not None:
        query = query.where(groups.c.eval_name == evaluation)
    if task is not None:
        query = query.where(groups.c.task_id == task)
    with ledger.read() as conn:
        return [_line(row) for row in conn.execute(query)]


def _line(row: Any) -> RolloutLine:
    artefacts = Outcome.model_validate(row.reported).artefacts
    values = [v if isinstance(v, str) else json.dumps(v) for v in artefacts.values()]
    said = " | ".join(values) if OutcomeStatus(row.status).gradable and values else row.detail
    return RolloutLine(
        rollout_id=row.rollout_id,
        task_id=row.task_id,
        purpose=row.eval_name or Purpose(row.purpose).value,
        version=row.version,
        status=row.status,
        reward=row.reward,
        advantage=row.advantage,
        said=" ".join((said or "").split()),
    )


def listed(lines: list[RolloutLine]) -> Table:
    """One line each; what does not fit is cut, and `--json` has all of it."""
    table = Table(box=None, padding=(0, 1), header_style="dim", expand=True)
    table.add_column("rollout", no_wrap=True)
    table.add_column("task", no_wrap=True, overflow="ellipsis", max_width=18)
    table.add_column("for", no_wrap=True, overflow="ellipsis", max_width=11)
    table.add_column("version", justify="right", no_wrap=True)
    table.add_column("reward", justify="right", no_wrap=True)
    table.add_column("handed in", no_wrap=True, overflow="ellipsis", ratio=1)
    for line in lines:
        version = "" if line.version is None else str(line.version)
        said = (
            line.said if line.status == OutcomeStatus.COMPLETED else f"{line.status}: {line.said}"
        )
        cells = (line.rollout_id, line.task_id, line.purpose, version, _number(line.reward), said)
        table.add_row(*map(Text, cells))
    return table


def whole(ledger: Ledger, rollout: str) -> dict[str, Any]:
    """All that is on record of one rollout; raises `UserError` if there is no such one."""
    query = (
        select(rollouts.c.state, tasks, groups.c.purpose, groups.c.eval_name)
        .select_from(rollouts)
        .join(groups, groups.c.group_id == rollouts.c.group_id)
        .join(tasks, tasks.c.task_id == groups.c.task_id)
        .where(rollouts.c.rollout_id == rollout)
    )
    with ledger.read() as conn:
        row = conn.execute(query).one_or_none()
        credit = conn.execute(select(credits).where(credits.c.rollout_id == rollout)).one_or_none()
        ended = conn.execute(select(outcomes).where(outcomes.c.rollout_id == rollout)).one_or_none()
    if row is None:
        raise UserError(
            "there is no such rollout in this run",
            value=rollout,
            fix="`tradewind rollouts RUN` lists the newest ones",
        )
    try:
        calls = [_call(turn) for turn in ledger.turns(rollout)]
    except LostPayload as error:
        calls = [{"lost": str(error)}]
    outcome = None if ended is None else Outcome.model_validate(ended.reported).artefacts
    return {
        "rollout_id": rollout,
        "state": row.state,
        "purpose": row.eval_name or row.purpose,
        "task": {name: getattr(row, name) for name in ("task_id", "kind", "split", "input")},
        "reference": row.reference,
        "calls": calls,
        "status": None if ended is None else ended.status,
        "detail": None if ended is None else ended.detail,
        "artefacts": outcome,
        "scores": [score.model_dump(mode="json") for score in ledger.scores(rollout)],
        "reward": None if credit is None else credit.reward,
        "advantage": None if credit is None else credit.advantage,
    }


def _call(turn: Turn) -> dict[str, Any]:
    done = turn.completion
    return {
        "messages": list(turn.messages),
        "said": turn.text,
        "tool_calls": list(turn.tool_calls),
        "state": turn.state.value,
        "kind": turn.kind,
        "tokens": 0 if done is None else len(done.output_ids),
        "finish": None if done is None else done.finish_reason.value,
        "pool": None if done is None else done.pool,
        "versions": [] if done is None else [span.version for span in done.spans],
    }


def shown(found: dict[str, Any]) -> RenderableType:
    """The whole of one rollout, from the question to the advantage."""
    task = found["task"]
    head = f"{found['rollout_id']} ({found['purpose']}, {found['state']}), task {task['task_id']}"
    parts = [Text(head, style="bold"), *_field("task", task["input"])]
    parts += _field("reference, which no agent sees", found["reference"])
    seen = 0
    for number, call in enumerate(found["calls"], start=1):
        parts += _said(number, call, seen)
        seen = len(call.get("messages", ()))
    parts += _field(f"outcome: {found['status']}", found["artefacts"])
    if found["detail"]:
        parts.append(Text(f"  {found['detail']}"))
    for score in found["scores"]:
        cause = f" ({score['cause']})" if score["cause"] else ""
        parts.append(Text(f"{score['source']}: {_number(score['value'])}{cause}", style="cyan"))
    reward, advantage = _number(found["reward"]), _number(found["advantage"])
    parts.append(Text(f"reward {reward}, advantage {advantage}", style="bold"))
    return Group(*parts)


def _said(number: int, call: dict[str, Any], seen: int) -> Iterator[RenderableType]:
    """One call of the model: the messages that are new, and the answer."""
    if "lost" in call:
        yield Text(call["lost"], style="red")
        return
    new = call["messages"][seen:] if call["kind"] == "extended" else call["messages"]
    for message in new:
        yield from _field(str(message.get("role", "")), message.get("content"))
    versions = ", ".join(map(str, call["versions"]))
    words = f"call {number}: {call['tokens']} tokens by {call['pool']}, version {versions}"
    yield Text(f"{words}, {call['finish'] or call['state']}", style="dim")
    yield from _field("the model", call["said"], style="green")
    for tool_call in call["tool_calls"]:
        yield from _field("calls a tool", tool_call, style="green")


def _field(name: str, value: Any, style: str = "") -> Iterator[RenderableType]:
    yield Text(name, style="dim")
    said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    yield Padding(Text(said, style=style), (0, 0, 0, 2))


def _number(value: float | None) -> str:
    return "null" if value is None else f"{value:.2f}"
