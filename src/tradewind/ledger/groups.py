"""Groups: open, refill after a null, close with credit, reject."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, and_, func, insert, select, update

from tradewind.ledger.aside import (
    CAUGHT,
    INVALID,
    aside_if_caught_often,
    aside_if_invalid,
)
from tradewind.ledger.compositions import composition_data
from tradewind.ledger.database import AnyRow, Database
from tradewind.ledger.draws import next_draw, queue_again
from tradewind.ledger.events import note
from tradewind.ledger.rollouts import LIVE, PRIORITY, cancel_rollouts
from tradewind.ledger.scores import mark_nulls, scores_of_group
from tradewind.ledger.short import goes_on, last_of, null_causes, short_of_rollouts, shrink
from tradewind.ledger.tables import credits, groups, rollouts, turns, versions
from tradewind.ledger.trust import factors_of
from tradewind.types.composed import Composed
from tradewind.types.group import Group, GroupState, Purpose
from tradewind.types.ids import GroupId, RolloutId, group_id, rollout_id
from tradewind.types.outcome import OutcomeStatus
from tradewind.types.record import Json
from tradewind.types.score import Score
from tradewind.types.turn import TurnState

Compose = Callable[[Json | None, Sequence[Sequence[Score]], Mapping[str, float]], Composed]
"""A composition, the scores of each graded rollout of a group, and the trust in each judge, to the
group's rewards."""
Advantages = Callable[[Sequence[float | None], float], list[float | None]]
"""Rewards of a group and their resolution to the credit of each rollout; None exactly where the
reward is None."""

TAINTED = "tainted"
"""How the cause of an evaluation group begins that was answered by another version."""
MAX_TAINTED = 3
"""How often such a group is tried again."""

_OUTSTANDING = (GroupState.OPEN.value, GroupState.CLOSED.value)
_IN_TRAINING = and_(groups.c.purpose == Purpose.TRAIN.value, groups.c.state.in_(_OUTSTANDING))


class Groups(Database):
    """Called by the controller."""

    def open_training_group(
        self,
        size: int,
        limit: int | None = None,
        min_version: int = 0,
        at_version: int | None = None,
    ) -> Group | None:
        """Draw the next task and open `size` waiting rollouts of it.

        None, and nothing drawn, if `limit` training groups are already outstanding (open or
        closed, not yet consumed). Pools with weights older than `min_version` shall not answer
        it. None too if `at_version` is no longer the newest one: a step that committed since
        `limit` was computed has freed room that the caller did not count on; and if every training
        task is set aside. Raises `UserError` if there is none.
        """
        with self.read() as conn:  # the usual case, no room, needs no writer's lock
            if limit is not None and _outstanding(conn) >= limit:
                return None
        with self.write() as conn:
            if limit is not None and _outstanding(conn) >= limit:
                return None
            if at_version is not None and newest_version(conn) != at_version:
                return None
            draw = next_draw(conn)
            if draw is None:
                return None
            return open_group(
                conn,
                draw.task_id,
                size,
                (newest_version(conn), min_version),
                attempt=draw.attempt,
                origin=draw.draw,
            )

    def outstanding(self) -> int:
        """Training groups that are open or closed and not yet consumed."""
        with self.read() as conn:
            return _outstanding(conn)

    def group(self, group: GroupId) -> Group:
        """One group; raises `KeyError` if there is none of that id."""
        with self.read() as conn:
            row = conn.execute(select(groups).where(groups.c.group_id == group)).one_or_none()
        if row is None:
            raise KeyError(group)
        return group_of_row(row)

    def refill(
        self, max_refills: int, min_size: int | None = None, max_invalid: int | None = None
    ) -> int:
        """Open a rollout for every null one, in each open group; how many were opened.

        A training group with more than `max_refills` nulls goes on with the rollouts that it has
        if these are `min_size` or more (None: never). Otherwise it is rejected: its other rollouts
        end, a training task is queued again, an evaluation task counts as null; a training task
        with `max_invalid` (None: any number) such groups in a row whose nulls came from environment
        or verifier is set aside (`aside.py`). One transaction.
        """
        with self.read() as conn:  # the usual case, none, needs no writer's lock
            if not short_of_rollouts(conn):
                return 0
        opened = 0
        with self.write() as conn:
            for row in short_of_rollouts(conn):
                if row.nulls > max_refills and goes_on(row, min_size):
                    shrink(conn, row)
                    continue
                if row.nulls > max_refills:
                    _reject_null(conn, row, max_invalid)
                    continue
                missing = row.size - row.useful
                for index in range(row.total, row.total + missing):
                    add_rollout(conn, row.group_id, row.number, index, row.purpose)
                opened += missing
        return opened

    def close_ready(
        self,
        compose: Compose,
        advantages: Advantages,
        trust: Mapping[tuple[str, str], float] | None = None,
        max_caught: int = 3,
    ) -> list[GroupId]:
        """Close each open group in which `size` rollouts have a reward; write its credit.

        An evaluation group becomes EVALUATED; a training group CLOSED, for the trainer. Each group
        closes in one transaction with its credit, so a closed group never lacks it; it stays closed
        if the database's server crashes, for the trainer may have learnt from it by then.
        `trust` is the factor of each judge by signal and version (`factors_by_version`). It decides
        which rollouts are null, too, whatever a grader took them for: a group may so have more
        rollouts than it was opened with, or lack some and stay open. A group that may not be
        trained (`Composed.rejected`) is rejected, and its task queued again; a task with
        `max_caught` groups that a tripwire caught is set aside (`aside.py`).
        """
        with self.read() as conn:
            ready = _with_all_scores(conn)
        make = _Maker(compose, advantages, trust or {}, max_caught)
        return [group for group in ready if self._close(group, make)]

    def _close(self, group: GroupId, make: _Maker) -> bool:
        with self.write(durable=True) as conn:
            row = conn.execute(
                select(groups).where(
                    groups.c.group_id == group, groups.c.state == GroupState.OPEN.value
                )
            ).one_or_none()
            if row is None:  # somebody else closed or rejected it since we looked
                return False
            if row.purpose == Purpose.EVAL.value and _repeat_if_tainted(conn, row):
                return False
            graded = scores_of_group(conn, group)
            data = composition_data(conn, row.composition)
            trust = factors_of(graded.values(), make.trust)
            composed = make.compose(data, list(graded.values()), trust)
            rewards, evaluated = composed.rewards, row.purpose == Purpose.EVAL.value
            rewarded = sum(reward is not None for reward in rewards)
            # Who is caught in an evaluation has failed it; nothing of it would be trained anyway.
            if composed.rejected and not (evaluated and rewards):
                _reject_composed(conn, row, composed, make.max_caught)
                return False
            mark_nulls(conn, dict(zip(graded, (reward is None for reward in rewards), strict=True)))
            if rewarded < row.size:  # a judge has weight again that did not answer: `refill`
                return False
            credit = make.advantages(rewards, composed.resolution)
            _write_credits(conn, list(graded), rewards, credit)
            state = GroupState.EVALUATED if evaluated else GroupState.CLOSED
            notes = {"factors": composed.factors, "left_out": composed.left_out}
            _set_state(conn, group, state, closed_at=time.time(), size=rewarded, **notes)
        return True


class _Maker(NamedTuple):
    """How the scores of a group become credit."""

    compose: Compose
    advantages: Advantages
    trust: Mapping[tuple[str, str], float]
    max_caught: int


def open_group(
    conn: Connection,
    task_id: str,
    size: int,
    versions: tuple[int, int],
    *,
    attempt: int = 0,
    origin: int | str,
) -> Group:
    """Insert a group and its waiting rollouts.

    `versions` are the newest when it is opened and the oldest that may answer; `origin` is the
    number of its draw (training) or the name of its evaluation.
    """
    draw, eval_name = (origin, None) if isinstance(origin, int) else (None, origin)
    number = conn.execute(select(func.count()).select_from(groups)).scalar_one()
    group = Group(
        group_id=group_id(number),
        task_id=task_id,
        purpose=Purpose.EVAL if draw is None else Purpose.TRAIN,
        size=size,
        attempt=attempt,
        eval_name=eval_name,
        opened_version=versions[0],
        state=GroupState.OPEN,
    )
    values = group.model_dump(mode="json")
    conn.execute(
        insert(groups).values(
            **values, number=number, draw=draw, min_version=versions[1], opened_at=time.time()
        )
    )
    for index in range(size):
        add_rollout(conn, group.group_id, number, index, group.purpose)
    return group


def add_rollout(conn: Connection, group: GroupId, number: int, index: int, purpose: str) -> None:
    """Insert a waiting rollout."""
    conn.execute(
        insert(rollouts).values(
            rollout_id=rollout_id(group, index),
            group_id=group,
            number=number,
            idx=index,
            priority=PRIORITY[Purpose(purpose)],
            state="waiting",
        )
    )


def _reject_composed(conn: Connection, row: AnyRow, composed: Composed, max_caught: int) -> None:
    """Reject a group whose scores forbid to train it; what was caught is quarantined by name."""
    assert composed.rejected is not None
    if composed.caught is None:
        reject(conn, row.group_id, composed.rejected, wait=True)
        return
    reject(conn, row.group_id, CAUGHT + composed.rejected, wait=True)
    note(conn, "rollout.caught", composed.caught, f"task {row.task_id}: {composed.rejected}")
    if row.draw is not None:
        aside_if_caught_often(conn, row.task_id, max_caught, composed.rejected)


def _reject_null(conn: Connection, row: AnyRow, max_invalid: int | None) -> None:
    """Reject a group that nulls keep from its size."""
    causes = null_causes(conn, row.group_id)
    said = f"{row.nulls} rollouts came back null, {last_of(causes)}"
    platform = OutcomeStatus.INFRA_ERROR.value
    own = sum(not cause.startswith(platform) for cause in causes)
    invalid = 2 * own > len(causes)
    reject(conn, row.group_id, (INVALID if invalid else "") + said, wait=True)
    if invalid and max_invalid is not None and row.draw is not None:
        aside_if_invalid(conn, row.task_id, max_invalid, said)


def reject(conn: Connection, group: GroupId, cause: str, *, wait: bool) -> None:
    """End a group without training it; a training task is queued again in this transaction."""
    row = conn.execute(select(groups).where(groups.c.group_id == group)).one()
    assert row.state in _OUTSTANDING, f"{group} is {row.state}, it cannot be rejected"
    _set_state(conn, group, GroupState.REJECTED, cause=cause)
    cancel_rollouts(conn, group)
    if row.draw is not None:
        queue_again(conn, row.draw, wait=wait)
    note(conn, "group.rejected", group, f"task {row.task_id}: {cause}")


def group_of_row(row: AnyRow) -> Group:
    """A row of `groups` as a record."""
    return Group(
        group_id=row.group_id,
        task_id=row.task_id,
        purpose=Purpose(row.purpose),
        size=row.size,
        attempt=row.attempt,
        eval_name=row.eval_name,
        opened_version=row.opened_version,
        state=GroupState(row.state),
        cause=row.cause,
    )


def newest_version(conn: Connection) -> int:
    """The newest committed policy version; 0 before any was committed."""
    return conn.execute(select(func.max(versions.c.version))).scalar_one() or 0


def sampled_versions(conn: Connection, group: GroupId) -> tuple[int, int] | None:
    """Oldest and newest version of any token in the group's rollouts that are not null."""
    row = conn.execute(
        select(func.min(turns.c.oldest_version), func.max(turns.c.newest_version))
        .join(rollouts, rollouts.c.rollout_id == turns.c.rollout_id)
        .where(
            rollouts.c.group_id == group,
            rollouts.c.null == 0,
            turns.c.state == TurnState.DONE.value,
        )
    ).one()
    return None if row[0] is None else (row[0], row[1])


def _repeat_if_tainted(conn: Connection, row: AnyRow) -> bool:
    """Whether tokens came from another version than the evaluation asked for.

    Then the group is rejected and its task tried again, at most `MAX_TAINTED` times.
    """
    sampled = sampled_versions(conn, row.group_id)
    if sampled is None or sampled == (row.opened_version, row.opened_version):
        return False
    asked = row.opened_version
    cause = f"{TAINTED}: tokens from versions {sampled[0]} to {sampled[1]}, asked was {asked}"
    reject(conn, row.group_id, cause, wait=False)
    if row.attempt < MAX_TAINTED:
        open_group(
            conn,
            row.task_id,
            row.size,
            (asked, asked),
            attempt=row.attempt + 1,
            origin=row.eval_name,
        )
    return True


def outstanding_groups(conn: Connection) -> Sequence[GroupId]:
    """Training groups that are open or closed and not yet consumed, oldest first."""
    query = select(groups.c.group_id).where(_IN_TRAINING).order_by(groups.c.number)
    return conn.execute(query).scalars().all()


def _outstanding(conn: Connection) -> int:
    return conn.execute(select(func.count()).select_from(groups).where(_IN_TRAINING)).scalar_one()


def _set_state(conn: Connection, group: GroupId, state: GroupState, **values: Any) -> None:
    conn.execute(
        update(groups).where(groups.c.group_id == group).values(state=state.value, **values)
    )


def _write_credits(
    conn: Connection,
    ids: Sequence[RolloutId],
    rewards: Sequence[float | None],
    credit: Sequence[float | None],
) -> None:
    for rollout, reward, advantage in zip(ids, rewards, credit, strict=True):
        assert (reward is None) == (advantage is None), (rollout, reward, advantage)
        assert advantage is None or math.isfinite(advantage), (rollout, advantage)
        conn.execute(insert(credits).values(rollout_id=rollout, reward=reward, advantage=advantage))


def _with_all_scores(conn: Connection) -> list[GroupId]:
    alive = and_(rollouts.c.group_id == groups.c.group_id, rollouts.c.state.in_(LIVE))
    useful = func.count() - func.sum(rollouts.c.null)
    return list(
        conn.execute(
            select(groups.c.group_id)
            .join(rollouts, rollouts.c.group_id == groups.c.group_id)
            .where(
                groups.c.state == GroupState.OPEN.value,
                ~select(rollouts.c.rollout_id).where(alive).correlate(groups).exists(),
            )
            .group_by(groups.c.group_id, groups.c.number, groups.c.size)
            .having(useful >= groups.c.size)
            .order_by(groups.c.number)
        ).scalars()
    )
