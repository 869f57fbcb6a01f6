"""Rollouts end with an outcome and scores, and credit is what the scores say (promise R4)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Select, func, select

from tradewind.ledger.audit_prompts import n_of
from tradewind.ledger.compositions import composition_data
from tradewind.ledger.groups import Compose
from tradewind.ledger.scores import scores_of_group
from tradewind.ledger.tables import consumption, credits, groups, outcomes, rollouts, scores, turns
from tradewind.types.group import GroupState
from tradewind.types.outcome import OutcomeStatus


def counted(conn: Connection) -> str:
    """`512 rollouts: 20 cancelled, 480 graded, 12 running`."""
    query = select(rollouts.c.state, func.count().label("n")).group_by(rollouts.c.state)
    found = {row.state: row.n for row in conn.execute(query.order_by(rollouts.c.state))}
    parts = [f"{n} {state}" for state, n in found.items()]
    return n_of(sum(found.values()), "rollout") + (f": {', '.join(parts)}" if parts else "")


def ended(conn: Connection) -> Iterator[str]:
    """Graded means scored, ended means reported, closed means credited."""
    yield from _records(conn)
    yield from _nulls(conn)
    yield from _closed(conn)
    yield from _credits(conn)


def _records(conn: Connection) -> Iterator[str]:
    unscored = (
        select(rollouts.c.rollout_id)
        .outerjoin(scores, scores.c.rollout_id == rollouts.c.rollout_id)
        .where(rollouts.c.state == "graded", scores.c.rollout_id.is_(None))
    )
    yield from _each(conn, unscored, "is graded without a score")
    silent = (
        select(rollouts.c.rollout_id)
        .outerjoin(outcomes, outcomes.c.rollout_id == rollouts.c.rollout_id)
        .where(rollouts.c.state.in_(["finished", "graded"]), outcomes.c.rollout_id.is_(None))
    )
    yield from _each(conn, silent, "ended without an outcome")
    causeless = select(scores.c.rollout_id).where(
        scores.c.value.is_(None), func.coalesce(scores.c.cause, "") == ""
    )
    yield from _each(conn, causeless, "has a null score without a cause")
    orphan = select(turns.c.rollout_id).outerjoin(
        rollouts, rollouts.c.rollout_id == turns.c.rollout_id
    )
    yield from _each(conn, orphan.where(rollouts.c.rollout_id.is_(None)), "has turns and no row")


def _nulls(conn: Connection) -> Iterator[str]:
    """Only a null score makes a null rollout; what the policy caused is graded."""
    nulls = (
        select(rollouts.c.rollout_id, rollouts.c.null, func.min(outcomes.c.status).label("status"))
        .add_columns(
            func.count().label("scores"),
            (func.count() - func.count(scores.c.value)).label("missing"),
        )
        .join(scores, scores.c.rollout_id == rollouts.c.rollout_id)
        .join(outcomes, outcomes.c.rollout_id == rollouts.c.rollout_id)
        .where(rollouts.c.state == "graded")
        .group_by(rollouts.c.rollout_id, rollouts.c.null)
    )
    for row in conn.execute(nulls):
        if row.missing < row.null or (row.missing == row.scores and not row.null):
            yield f"{row.rollout_id} counts as {'null' if row.null else 'graded'}, scores differ"
        if not row.null and not OutcomeStatus(row.status).gradable:
            yield f"{row.rollout_id} ended with {row.status} and was graded"


def _closed(conn: Connection) -> Iterator[str]:
    closed = (GroupState.CLOSED.value, GroupState.CONSUMED.value, GroupState.EVALUATED.value)
    rewarded = (
        select(groups.c.group_id, groups.c.size, func.count(credits.c.reward).label("n"))
        .join(rollouts, rollouts.c.group_id == groups.c.group_id)
        .outerjoin(credits, credits.c.rollout_id == rollouts.c.rollout_id)
        .where(groups.c.state.in_(closed))
        .group_by(groups.c.group_id, groups.c.size)
    )
    for row in conn.execute(rewarded):
        if row.n != row.size:
            yield f"{row.group_id} is closed with {row.n} rewards of {row.size}"
    consumed = {row.group_id: row.step for row in conn.execute(select(consumption))}
    for row in conn.execute(select(groups.c.group_id, groups.c.state)):
        if (row.group_id in consumed) != (row.state == GroupState.CONSUMED.value):
            yield f"{row.group_id} is {row.state}, consumed by step {consumed.get(row.group_id)}"


def _credits(conn: Connection) -> Iterator[str]:
    """Reward and advantage go together; a group that no composition rewards has one score each."""
    only = (
        select(scores.c.rollout_id, func.count().label("n"), func.max(scores.c.value).label("v"))
        .group_by(scores.c.rollout_id)
        .subquery()
    )
    query = (
        select(credits, only.c.n, only.c.v, rollouts.c.null, groups.c.composition)
        .join(rollouts, rollouts.c.rollout_id == credits.c.rollout_id)
        .join(groups, groups.c.group_id == rollouts.c.group_id)
    )
    for row in conn.execute(query.outerjoin(only, only.c.rollout_id == credits.c.rollout_id)):
        if (row.reward is None) != (row.advantage is None):
            yield f"{row.rollout_id} has reward {row.reward} and advantage {row.advantage}"
        elif row.advantage is not None and not math.isfinite(row.advantage):
            yield f"{row.rollout_id} has advantage {row.advantage}"
        elif row.n is None or (row.composition is None and row.v != row.reward):
            yield f"{row.rollout_id} was credited {row.reward}, its score says {row.v}"
        if row.null and row.reward is not None:
            yield f"{row.rollout_id} is null and has credit"


def recomposed(conn: Connection, compose: Compose) -> Iterator[str]:
    """Rewards are what the formula says of the scores, with the trust that judges had then."""
    pinned = groups.c.composition.is_not(None) & groups.c.factors.is_not(None)
    for row in conn.execute(select(groups).where(pinned).order_by(groups.c.number)).all():
        graded = scores_of_group(conn, row.group_id)
        data = composition_data(conn, row.composition)
        rewards = compose(data, list(graded.values()), row.factors).rewards
        credited = conn.execute(
            select(credits.c.rollout_id, credits.c.reward).where(credits.c.rollout_id.in_(graded))
        )
        said = {found.rollout_id: found.reward for found in credited}
        for rollout, reward in zip(graded, rewards, strict=True):
            if rollout not in said or said[rollout] != reward:
                yield f"{rollout} was credited {said.get(rollout)}, the formula says {reward}"


def _each(conn: Connection, query: Select[Any], what: str) -> Iterator[str]:
    for subject in conn.execute(query.distinct()).scalars():
        yield f"{subject} {what}"
