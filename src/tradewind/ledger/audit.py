"""Invariants of the ledger, checked from outside the code that keeps them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Select, func, select

from tradewind.ledger.database import Database
from tradewind.ledger.draws import permutation
from tradewind.ledger.run import run_seed
from tradewind.ledger.tables import (
    consumption,
    credits,
    draws,
    groups,
    outcomes,
    rollouts,
    scores,
    steps,
    tasks,
    turns,
    versions,
)
from tradewind.ledger.turns import turns_of
from tradewind.types.group import GroupState, Purpose
from tradewind.types.task import Split
from tradewind.types.turn import Turn, TurnState


class Audit(Database):
    """Called by tests and by whoever doubts a run."""

    def audit(self) -> list[str]:
        """A sentence for every violated invariant; empty if the ledger is sound."""
        with self.read() as conn:
            return [
                *_draws(conn),
                *_groups(conn),
                *_rollouts(conn),
                *_lineage(conn),
                *_consumed_turns(conn),
            ]


def _draws(conn: Connection) -> Iterator[str]:
    """No draw is skipped, and each stands where the seed put it."""
    in_training = select(tasks.c.task_id).where(tasks.c.split == Split.TRAIN.value)
    order = list(conn.execute(in_training.order_by(tasks.c.position)).scalars())
    seed = run_seed(conn)
    for expected, row in enumerate(conn.execute(select(draws).order_by(draws.c.draw))):
        if row.draw != expected:
            yield f"draw {expected} was skipped"
            return
        n = len(order)
        if row.task_id != order[permutation(seed, expected // n, n)[expected % n]]:
            yield f"draw {expected} took task {row.task_id}, not the one the seed puts there"
    alive = (
        select(groups.c.draw, func.count().label("n"))
        .where(groups.c.state.in_([GroupState.OPEN.value, GroupState.CLOSED.value]))
        .group_by(groups.c.draw)
        .subquery()
    )
    rows = conn.execute(
        select(draws.c.draw, draws.c.state, alive.c.n).outerjoin(
            alive, alive.c.draw == draws.c.draw
        )
    )
    for row in rows:
        if (row.n or 0) != (1 if row.state == "open" else 0):
            yield f"draw {row.draw} is {row.state} with {row.n or 0} live groups"


def _groups(conn: Connection) -> Iterator[str]:
    consumed = {row.group_id: row.step for row in conn.execute(select(consumption))}
    for row in conn.execute(select(groups)):
        if (row.group_id in consumed) != (row.state == GroupState.CONSUMED.value):
            yield f"{row.group_id} is {row.state}, consumed by {consumed.get(row.group_id)}"
        if (row.draw is None) != (row.purpose == Purpose.EVAL.value):
            yield f"{row.group_id} is for {row.purpose} with draw {row.draw}"
        if row.group_id in consumed and row.purpose != Purpose.TRAIN.value:
            yield f"{row.group_id} is held out and was trained"
    consumptions = (
        select(groups.c.draw, func.count().label("n"))
        .join(consumption, consumption.c.group_id == groups.c.group_id)
        .group_by(groups.c.draw)
    )
    for row in conn.execute(consumptions):
        if row.n > 1:
            yield f"draw {row.draw} was trained {row.n} times"
    held_out_draws = select(draws.c.draw).join(tasks, tasks.c.task_id == draws.c.task_id)
    for draw in conn.execute(held_out_draws.where(tasks.c.split != Split.TRAIN.value)).scalars():
        yield f"draw {draw} took a held-out task"


def _rollouts(conn: Connection) -> Iterator[str]:
    """Graded means scored; closed means as many rewards as the group's size."""
    unscored = (
        select(rollouts.c.rollout_id)
        .outerjoin(scores, scores.c.rollout_id == rollouts.c.rollout_id)
        .where(rollouts.c.state == "graded", scores.c.rollout_id.is_(None))
    )
    yield from _each(conn, unscored, "is graded without a score")
    ended = rollouts.c.state.in_(["finished", "graded"])
    silent = (
        select(rollouts.c.rollout_id)
        .outerjoin(outcomes, outcomes.c.rollout_id == rollouts.c.rollout_id)
        .where(ended, outcomes.c.rollout_id.is_(None))
    )
    yield from _each(conn, silent, "ended without an outcome")
    closed = groups.c.state.in_(
        [GroupState.CLOSED.value, GroupState.CONSUMED.value, GroupState.EVALUATED.value]
    )
    rewarded = (
        select(groups.c.group_id, groups.c.size, func.count(credits.c.reward).label("n"))
        .join(rollouts, rollouts.c.group_id == groups.c.group_id)
        .outerjoin(credits, credits.c.rollout_id == rollouts.c.rollout_id)
        .where(closed)
        .group_by(groups.c.group_id, groups.c.size)
    )
    for row in conn.execute(rewarded):
        if row.n != row.size:
            yield f"{row.group_id} is closed with {row.n} rewards of {row.size}"
    for row in conn.execute(select(credits)):
        if (row.reward is None) != (row.advantage is None):
            yield f"{row.rollout_id} has reward {row.reward} and advantage {row.advantage}"
        elif row.advantage is not None and not math.isfinite(row.advantage):
            yield f"{row.rollout_id} has advantage {row.advantage}"


def _lineage(conn: Connection) -> Iterator[str]:
    """Versions follow each other; steps are numbered without a gap, each with its version."""
    parent: Any = None
    for number, row in enumerate(conn.execute(select(versions).order_by(versions.c.version))):
        if row.version != number:
            yield f"version {number} is missing"
            return
        if parent is not None and row.parent_state_id != parent.state_id:
            yield f"version {row.version} does not follow {parent.version}"
        parent = row
    for number, row in enumerate(conn.execute(select(steps).order_by(steps.c.step))):
        if row.step != number:
            yield f"step {number} is missing"
            return


def _consumed_turns(conn: Connection) -> Iterator[str]:
    """Every trained rollout has tokens with spans and finite log-probabilities."""
    trained = (
        select(rollouts.c.rollout_id)
        .join(consumption, consumption.c.group_id == rollouts.c.group_id)
        .join(credits, credits.c.rollout_id == rollouts.c.rollout_id)
        .where(credits.c.reward.is_not(None))
    )
    for rollout in conn.execute(trained).scalars().all():
        turns_by_id = {t.turn_id: t for t in turns_of(conn, [rollout]).get(rollout, [])}
        done = [t for t in turns_by_id.values() if t.state is TurnState.DONE]
        if not done:
            yield f"{rollout} was trained without a token"
        for turn in done:
            yield from _turn(turn, turns_by_id)
    orphan = select(turns.c.rollout_id).outerjoin(
        rollouts, rollouts.c.rollout_id == turns.c.rollout_id
    )
    yield from _each(conn, orphan.where(rollouts.c.rollout_id.is_(None)), "has turns and no row")


def _turn(turn: Turn, others: dict[str, Turn]) -> Iterator[str]:
    assert turn.completion is not None
    done = turn.completion
    n = len(done.output_ids)
    if n == 0 or len(done.logprobs) != n or sum(s.count for s in done.spans) != n:
        yield f"{turn.turn_id}: {n} ids, {len(done.logprobs)} logprobs, spans {done.spans}"
    if not all(math.isfinite(p) for p in done.logprobs):
        yield f"{turn.turn_id} has a log-probability that is not finite"
    if turn.parent is not None:
        parent = others.get(turn.parent)
        if parent is None or parent.completion is None:
            yield f"{turn.turn_id} extends {turn.parent}, which has no tokens"
            return
        prefix = parent.prompt_ids + parent.completion.output_ids
        if turn.prompt_ids[: len(prefix)] != prefix:
            yield f"{turn.turn_id} does not extend {turn.parent} id for id"


def _each(conn: Connection, query: Select[Any], what: str) -> Iterator[str]:
    for subject in conn.execute(query.distinct()).scalars():
        yield f"{subject} {what}"
