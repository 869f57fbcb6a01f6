"""Scores: claimed by a grader, written once."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, func, insert, or_, select, update

from tradewind.ledger.compositions import newest_composition
from tradewind.ledger.database import AnyRow, Database
from tradewind.ledger.run import read_task
from tradewind.ledger.tables import groups, outcomes, rollouts, scores
from tradewind.types.errors import Conflict
from tradewind.types.ids import GroupId, RolloutId
from tradewind.types.outcome import Outcome, OutcomeStatus
from tradewind.types.score import Score
from tradewind.types.task import Task


@dataclass(frozen=True)
class FinishedRollout:
    """What a grader claims."""

    rollout_id: RolloutId
    task: Task
    outcome: Outcome
    """With the status and detail as they count, not as the worker reported them."""
    composition: str | None
    """Which composition its group is rewarded by; None if none was ever put in use."""
    claims: int
    """How many times it has been claimed, this one included; more than 1: a grader died on it."""
    ended_at: float
    """When its outcome came, in Unix seconds: says which end is graded, should it have two."""
    put_off: int = 0
    """How often it was put off because a judge gave no verdict; such claims do not count."""


class Scores(Database):
    """Called by the grader."""

    def claim_finished(self, owner: str, n: int, now: float, ttl_s: float) -> list[FinishedRollout]:
        """Claim up to `n` finished rollouts for `ttl_s` seconds, evaluations first.

        A claim that runs out (its grader was killed) can be taken by anybody; so nothing is lost.
        """
        free = or_(rollouts.c.grader_until.is_(None), rollouts.c.grader_until < now)
        query = (
            select(
                rollouts.c.rollout_id,
                rollouts.c.grader_claims,
                rollouts.c.put_off,
                groups.c.task_id,
                groups.c.group_id,
                groups.c.composition,
            )
            .join(groups, groups.c.group_id == rollouts.c.group_id)
            .where(rollouts.c.state == "finished", free)
            .order_by(rollouts.c.priority, rollouts.c.number, rollouts.c.idx)
            .limit(n)
        )
        with self.read() as conn:  # the usual case, none, needs no writer's lock
            if conn.execute(query).first() is None:
                return []
        with self.write() as conn:
            return [_claim(conn, row, owner, now + ttl_s) for row in conn.execute(query).all()]

    def hold_claims(self, owner: str, held: Sequence[RolloutId], until: float) -> None:
        """Keep the claims of an owner who is still at work; one that was lost stays lost."""
        if not held:
            return
        with self.write() as conn:
            conn.execute(
                update(rollouts)
                .where(rollouts.c.rollout_id.in_(held), rollouts.c.grader == owner)
                .where(rollouts.c.state == "finished")
                .values(grader_until=until)
            )

    def put_off(self, owner: str, rollout: RolloutId, until: float) -> bool:
        """Give a claim back: the rollout is finished as before, nobody claims it before `until`.

        For a verdict that may come later: no score is written, so the first verdict still stands,
        and nothing is sampled again. False if the claim was lost or the group given up meanwhile.
        """
        with self.write() as conn:
            done = conn.execute(
                update(rollouts)
                .where(rollouts.c.rollout_id == rollout, rollouts.c.grader == owner)
                .where(rollouts.c.state == "finished")
                .values(
                    grader=None,
                    grader_until=until,
                    grader_claims=rollouts.c.grader_claims - 1,
                    put_off=rollouts.c.put_off + 1,
                )
            )
            return done.rowcount > 0

    def waiting_for_judges(self) -> int:
        """Finished rollouts that were put off and are still without scores."""
        with self.read() as conn:
            return conn.execute(
                select(func.count())
                .select_from(rollouts)
                .where(rollouts.c.state == "finished", rollouts.c.put_off > 0)
            ).scalar_one()

    def write_scores(
        self,
        rollout: RolloutId,
        new: Sequence[Score],
        *,
        null: bool | None = None,
        ended_at: float | None = None,
    ) -> bool:
        """Write the rollout's scores; it is graded from here on.

        `null` says whether it has no reward, as far as is known before its group closes; by
        default exactly if one of the scores is null.

        Repeating does nothing and returns False: the first verdict stands (a grader that was
        thought dead may come late). False too if its group was given up meanwhile, or if the end
        that was graded (`ended_at`, of the claim) is not in the ledger any more: a database that
        crashed forgets its last moment, and the rollout is played again. Raises `Conflict` for a
        rollout without an end if `ended_at` is not given.
        """
        assert new, "a graded rollout has at least one score"
        assert all(score.rollout_id == rollout for score in new), (rollout, new)
        with self.write() as conn:
            row = conn.execute(
                select(rollouts.c.state, outcomes.c.at)
                .outerjoin(outcomes, outcomes.c.rollout_id == rollouts.c.rollout_id)
                .where(rollouts.c.rollout_id == rollout)
            ).one_or_none()
            if row is not None and row.state in ("graded", "cancelled"):
                return False
            if ended_at is not None and (row is None or row.at != ended_at):
                return False
            if row is None or row.state != "finished":
                raise Conflict(f"{rollout} is {row.state if row else 'unknown'}, not graded")
            grade(conn, rollout, new, null=null)
        return True

    def scores(self, rollout: RolloutId) -> tuple[Score, ...]:
        """The scores of one rollout, by source."""
        with self.read() as conn:
            rows = conn.execute(
                select(scores).where(scores.c.rollout_id == rollout).order_by(scores.c.source)
            )
            return tuple(_score_of(row) for row in rows)


def grade(
    conn: Connection, rollout: RolloutId, new: Sequence[Score], *, null: bool | None = None
) -> None:
    """Insert scores and mark the rollout graded."""
    for score in new:
        conn.execute(insert(scores).values({**score.model_dump(), "at": time.time()}))
    without = any(score.value is None for score in new)
    assert without or not null, f"{rollout} is null without a null score"
    conn.execute(
        update(rollouts)
        .where(rollouts.c.rollout_id == rollout)
        .values(state="graded", null=int(without if null is None else null), grader_until=None)
    )


def mark_nulls(conn: Connection, nulls: Mapping[RolloutId, bool]) -> None:
    """Which of these graded rollouts are null, from here on."""
    for null in (False, True):
        conn.execute(
            update(rollouts)
            .where(
                rollouts.c.rollout_id.in_(
                    [name for name, is_null in nulls.items() if is_null == null]
                )
            )
            .where(rollouts.c.null != int(null))
            .values(null=int(null))
        )


def scores_of_group(conn: Connection, group: GroupId) -> dict[RolloutId, tuple[Score, ...]]:
    """Scores of each graded rollout of a group, rollouts in the order of their index."""
    found: dict[RolloutId, tuple[Score, ...]] = {}
    rows = conn.execute(
        select(scores)
        .join(rollouts, rollouts.c.rollout_id == scores.c.rollout_id)
        .where(rollouts.c.group_id == group, rollouts.c.state == "graded")
        .order_by(rollouts.c.idx, scores.c.source)
    )
    for row in rows:
        found[row.rollout_id] = (*found.get(row.rollout_id, ()), _score_of(row))
    return found


def _claim(conn: Connection, row: AnyRow, owner: str, until: float) -> FinishedRollout:
    composition = row.composition or _pin(conn, row.group_id)
    conn.execute(
        update(rollouts)
        .where(rollouts.c.rollout_id == row.rollout_id)
        .values(grader=owner, grader_until=until, grader_claims=row.grader_claims + 1)
    )
    ended = conn.execute(select(outcomes).where(outcomes.c.rollout_id == row.rollout_id)).one()
    return FinishedRollout(
        rollout_id=row.rollout_id,
        task=read_task(conn, row.task_id),
        outcome=outcome_of(ended),
        composition=composition,
        claims=row.grader_claims + 1,
        ended_at=ended.at,
        put_off=row.put_off,
    )


def outcome_of(row: AnyRow) -> Outcome:
    """A row of `outcomes` as a record, with the status and detail as they count."""
    return Outcome(
        status=OutcomeStatus(row.status),
        artefacts=row.reported["artefacts"],
        detail=row.detail,
        environment=row.reported.get("environment"),
    )


def _pin(conn: Connection, group: GroupId) -> str | None:
    """The group's composition, from here on the one in use."""
    known = conn.execute(
        select(groups.c.composition).where(groups.c.group_id == group)
    ).scalar_one_or_none()
    newest = known or newest_composition(conn)
    conn.execute(update(groups).where(groups.c.group_id == group).values(composition=newest))
    return newest


def _score_of(row: AnyRow) -> Score:
    return Score(
        rollout_id=row.rollout_id,
        source=row.source,
        source_version=row.source_version,
        value=row.value,
        cause=row.cause,
        evidence=row.evidence,
        seconds=row.seconds,
    )
