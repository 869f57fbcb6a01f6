"""Every gradient leads back to where it came from (promises R1, R2, R8).

A trained rollout's tokens are read from their payloads and compared with the columns by which they
are counted: engine's ids with a log-probability and a version each, from a pool that is named, on
an exact prefix, no older than the bound of its step.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Select, select

from tradewind.ledger.audit_prompts import n_of
from tradewind.ledger.database import AnyRow
from tradewind.ledger.payloads import LostPayload, Payloads
from tradewind.ledger.tables import (
    consumption,
    credits,
    outcomes,
    rollouts,
    scores,
    steps,
    versions,
)
from tradewind.ledger.turns import turn_of, turn_rows
from tradewind.ledger.withdrawn import off_the_way, read_returns
from tradewind.types.turn import Turn, TurnState

UNNAMED = "not named"
"""How an environment is counted whose worker did not say what it ran."""
BOUND = "trainer/staleness/bound"
"""In a step's metrics: how old its oldest token may have been."""


@dataclass
class _Found:
    """Violations, by check, and what was counted on the way."""

    untraced: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    n_rollouts: int = 0
    n_tokens: int = 0
    bounded: int = 0
    oldest: int = 0
    bound: float = 0.0


def checks(
    conn: Connection, payloads: Payloads, trained_by: dict[str, Counter[str]]
) -> Iterator[tuple[str, str, str, list[str]]]:
    """Name, promise, what was counted and violations; fills `trained_by`."""
    found = _Found()
    known = set(conn.execute(select(versions.c.version)).scalars())
    back_to = read_returns(conn)
    for name in ("pools", "versions", "environments", "graders", "workers"):
        trained_by[name] = Counter()
    for row in conn.execute(_trained()).all():
        found.n_rollouts += 1
        _origin(conn, row, found, trained_by)
        rows = turn_rows(conn, [row.rollout_id]).get(row.rollout_id, [])
        try:
            turns = [turn_of(turn, payloads) for turn in rows]
        except LostPayload as error:
            found.tokens.append(str(error))
            continue
        found.tokens += _turns(row.rollout_id, turns, rows)
        _versions(row, turns, known, found, trained_by)
        if back_to and row.version is not None:
            found.untraced += _withdrawn(row, turns, back_to)
    traced = ", ".join(n_of(len(trained_by[f"{n}s"]), n) for n in ("pool", "version", "grader"))
    yield (
        "every gradient is traced to its origin",
        "R7",
        f"{n_of(found.n_rollouts, 'rollout')}, {traced}",
        found.untraced,
    )
    yield (
        "trained tokens are the engine's, whole and verified",
        "R1",
        n_of(found.n_tokens, "token"),
        found.tokens,
    )
    bound = f" of {found.bound:.0f}" if found.bounded else ", no bound on record"
    yield (
        "no token was too old when it was trained",
        "R8",
        f"at most {found.oldest}{bound}",
        found.stale,
    )


def _trained() -> Select[Any]:
    """Rollouts with credit in consumed groups, with the step and the version that they made."""
    return (
        select(
            rollouts.c.rollout_id,
            rollouts.c.worker,
            consumption.c.step,
            steps.c.version,
            steps.c.metrics,
            outcomes.c.reported,
        )
        .join(consumption, consumption.c.group_id == rollouts.c.group_id)
        .join(credits, credits.c.rollout_id == rollouts.c.rollout_id)
        .outerjoin(steps, steps.c.step == consumption.c.step)
        .outerjoin(outcomes, outcomes.c.rollout_id == rollouts.c.rollout_id)
        .where(credits.c.reward.is_not(None))
        .order_by(consumption.c.step, rollouts.c.rollout_id)
    )


def _origin(
    conn: Connection, row: AnyRow, found: _Found, trained_by: dict[str, Counter[str]]
) -> None:
    """Worker, environment and graders of one rollout."""
    if not row.worker:
        found.untraced.append(f"{row.rollout_id} was trained, and no worker is named")
    trained_by["workers"][row.worker or UNNAMED] += 1
    environment = (row.reported or {}).get("environment")
    trained_by["environments"][environment or UNNAMED] += 1
    graded = select(scores).where(scores.c.rollout_id == row.rollout_id)
    for score in conn.execute(graded):
        if not score.source or not score.source_version:
            found.untraced.append(f"{row.rollout_id} has a score without a source and its version")
        trained_by["graders"][f"{score.source} {score.source_version}"] += 1


def _versions(
    row: AnyRow,
    turns: Sequence[Turn],
    known: set[int],
    found: _Found,
    trained_by: dict[str, Counter[str]],
) -> None:
    """Pools and weights that sampled the rollout, and how old they were when it was trained."""
    done = [turn.completion for turn in turns if turn.completion is not None]
    found.n_tokens += sum(len(completion.output_ids) for completion in done)
    sampled = {span.version for completion in done for span in completion.spans}
    for pool in {completion.pool for completion in done}:
        if not pool:
            found.untraced.append(f"{row.rollout_id} has tokens of a pool without a name")
        trained_by["pools"][pool or UNNAMED] += 1
    for version in sampled:
        trained_by["versions"][str(version)] += 1
        if version not in known:
            found.untraced.append(f"{row.rollout_id} has tokens of version {version}, unknown here")
    if row.version is None or not sampled:
        return
    lag = row.version - 1 - min(sampled)
    found.oldest = max(found.oldest, lag)
    if max(sampled) >= row.version:
        found.untraced.append(
            f"{row.rollout_id} has tokens of version {max(sampled)} and was trained into "
            f"{row.version}"
        )
    if (bound := row.metrics.get(BOUND)) is not None:
        found.bounded += 1
        found.bound = max(found.bound, bound)
        if lag > bound:
            found.stale.append(
                f"{row.rollout_id} was trained in step {row.step} with tokens {lag} versions old, "
                f"the bound is {bound:.0f}"
            )


def _withdrawn(row: AnyRow, turns: Sequence[Turn], back_to: Mapping[int, int]) -> Iterator[str]:
    """Tokens of weights from which those that were trained do not come."""
    trained = row.version - 1
    gone = off_the_way(trained, {v: goal for v, goal in back_to.items() if v <= trained})
    done = [turn.completion for turn in turns if turn.completion is not None]
    for version in sorted({span.version for one in done for span in one.spans} & gone):
        yield (
            f"{row.rollout_id} has tokens of version {version}, which had been withdrawn when it "
            f"was trained in step {row.step}"
        )


def _turns(rollout: str, turns: Sequence[Turn], rows: Sequence[AnyRow]) -> Iterator[str]:
    by_id = {turn.turn_id: turn for turn in turns}
    done = [turn for turn in turns if turn.state is TurnState.DONE]
    if not done:
        yield f"{rollout} was trained without a token"
    for turn, row in zip(turns, rows, strict=True):
        if turn.rollout_id != rollout or turn.turn_id != row.turn_id:
            yield f"{row.turn_id} names the payload of {turn.turn_id}"
        elif turn.state is TurnState.DONE:
            yield from _turn(turn, row, by_id)


def _turn(turn: Turn, row: AnyRow, others: dict[str, Turn]) -> Iterator[str]:
    done = turn.completion
    if done is None:
        yield f"{turn.turn_id} is done without an answer"
        return
    n = len(done.output_ids)
    if n == 0 or len(done.logprobs) != n or sum(s.count for s in done.spans) != n:
        yield f"{turn.turn_id}: {n} ids, {len(done.logprobs)} logprobs, spans {done.spans}"
        return
    if not all(math.isfinite(p) for p in done.logprobs):
        yield f"{turn.turn_id} has a log-probability that is not finite"
    sampled = [span.version for span in done.spans]
    columns = (row.oldest_version, row.newest_version, row.tokens, row.pool)
    if columns != (min(sampled), max(sampled), n, done.pool):
        yield f"{turn.turn_id} is counted as {columns}, its tokens say otherwise"
    if turn.parent is not None:
        parent = others.get(turn.parent)
        if parent is None or parent.completion is None:
            yield f"{turn.turn_id} extends {turn.parent}, which has no tokens"
            return
        prefix = parent.prompt_ids + parent.completion.output_ids
        if turn.prompt_ids[: len(prefix)] != prefix:
            yield f"{turn.turn_id} does not extend {turn.parent} id for id"
