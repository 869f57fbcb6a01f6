"""Steps and versions: what was trained, once, and into which weights (promises R7, R8)."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence

from sqlalchemy import Connection, delete, func, insert, select, update

from tradewind.ledger.database import AnyRow, Database
from tradewind.ledger.groups import group_of_row, reject, sampled_versions
from tradewind.ledger.payloads import LostPayload, Payloads
from tradewind.ledger.rows import put
from tradewind.ledger.run import read_task
from tradewind.ledger.scores import scores_of_group
from tradewind.ledger.tables import (
    consumption,
    credits,
    draws,
    groups,
    holders,
    rollouts,
    steps,
    turns,
    versions,
)
from tradewind.ledger.turns import turn_of, turn_rows
from tradewind.ledger.withdrawn import why_withdrawn, withdrawn_versions
from tradewind.types.errors import Conflict
from tradewind.types.group import ClosedGroup, GradedRollout, GroupState, Purpose
from tradewind.types.ids import GroupId
from tradewind.types.step import Step
from tradewind.types.turn import TurnState
from tradewind.types.weights import WeightVersion


class Steps(Database):
    """Called by the trainer."""

    def acquire_trainer(self, owner: str, now: float, ttl_s: float) -> None:
        """Be the run's only trainer until `now + ttl_s`; call again to renew.

        Raises `Conflict` while another owner holds it.
        """
        with self.write() as conn:
            row = conn.execute(select(holders).where(holders.c.name == "trainer")).one_or_none()
            if row is not None and row.owner != owner and row.until > now:
                raise Conflict(
                    f"another trainer ({row.owner}) works on this run and holds it for "
                    f"{row.until - now:.0f} more seconds; stop it, or wait"
                )
            put(conn, holders, {"name": "trainer"}, {"owner": owner, "until": now + ttl_s})

    def release_trainer(self, owner: str) -> None:
        """Stop being the trainer, so that the next one need not wait."""
        with self.write() as conn:
            conn.execute(
                delete(holders).where(holders.c.name == "trainer", holders.c.owner == owner)
            )

    def trainer(self) -> tuple[str, float] | None:
        """Owner of the trainer's place and until when (Unix seconds); None if it is free."""
        with self.read() as conn:
            row = conn.execute(select(holders).where(holders.c.name == "trainer")).one_or_none()
        return None if row is None else (row.owner, row.until)

    def claimable(
        self, n: int, version: int, max_staleness: int, held: Collection[str] = ()
    ) -> list[ClosedGroup]:
        """The `n` oldest closed groups whose every token is fresh enough for `version`.

        `held` are groups of a step that is trained and not committed yet: closed still, but no
        longer to be had, nor to be rejected. Fresh enough: `version - oldest_version() <=
        max_staleness` (hard, promise R8). Stale ones are rejected and their tasks queued again in
        the same transaction, with an event; so are those with tokens of a version that a return
        has withdrawn, and those whose token payloads are missing or damaged. Returns an empty list
        while there are fewer than `n`; see `closed` for how many.
        """
        while True:
            with self.read() as conn:  # while too few are closed, waiting needs no writer's lock
                if len(_closed(conn, held)) < n:
                    return []
            with self.write() as conn:
                gone, bound = withdrawn_versions(conn), version - max_staleness
                closed = _closed(conn, held)
                fresh = [row for row in closed if not _rejected(conn, row, version, bound, gone)]
            if len(fresh) < n:
                return []
            found = [self._whole(row) for row in fresh[:n]]
            whole = [group for group in found if group is not None]
            if len(whole) == n:
                return whole

    def _whole(self, row: AnyRow) -> ClosedGroup | None:
        """A closed group with its tokens; if some are lost, it is rejected with that cause."""
        try:
            with self.read() as conn:
                return _read_group(conn, row, self.payloads)
        except LostPayload as error:
            with self.write() as conn:
                reject(conn, row.group_id, str(error), wait=False)
            return None

    def closed(self, held: Collection[str] = ()) -> int:
        """How many groups are closed and wait for the trainer, without those that are `held`."""
        with self.read() as conn:
            return len(_closed(conn, held))

    def commit_step(self, step: Step, version: WeightVersion) -> None:
        """Step, consumption of its groups and the version it made: one transaction.

        A group is consumed at most once. Committing the same again does nothing; raises `Conflict`
        if this step or version is there with other content, is not the next one, or if a group
        is not closed.
        """
        assert step.version == version.version, (step.version, version.version)
        assert all(math.isfinite(value) for value in step.metrics.values()), step.metrics
        with self.read() as conn:
            named = _payloads_of(conn, step.group_ids)
        self.payloads.sync(named)  # as durable as the step that was trained on them
        with self.write(durable=True) as conn:
            known = _step_of(conn, step.step)
            if known is not None:
                _require_same(conn, known, step, version)
                return
            newest = conn.execute(select(func.max(steps.c.step))).scalar_one()
            expected = 0 if newest is None else newest + 1
            if step.step != expected:
                raise Conflict(f"the next step is {expected}, not {step.step}")
            insert_version(conn, version)
            conn.execute(insert(steps).values(**step.model_dump(exclude={"group_ids"})))
            for position, group in enumerate(step.group_ids):
                _consume(conn, group, step.step, position)

    def commit_version(self, version: WeightVersion) -> None:
        """A version without an RL step: the base checkpoint, mid-training.

        Committing the same again does nothing; raises `Conflict` if another is there, or if it
        does not follow the newest.
        """
        with self.write(durable=True) as conn:
            known = _version_of(conn, version.version)
            if known is not None and not _same_weights(known, version):
                raise Conflict(f"version {version.version} is {known.state_id}, not this")
            if known is None:
                insert_version(conn, version)

    def last_step(self) -> Step | None:
        """The newest committed step."""
        with self.read() as conn:
            newest = conn.execute(select(func.max(steps.c.step))).scalar_one()
            return None if newest is None else _step_of(conn, newest)

    def steps(self) -> list[Step]:
        """All committed steps, oldest first."""
        with self.read() as conn:
            numbers = conn.execute(select(steps.c.step).order_by(steps.c.step)).scalars().all()
            found = [_step_of(conn, number) for number in numbers]
        return [step for step in found if step is not None]

    def versions_since(self, at: float) -> list[int]:
        """Versions that steps committed after `at` (Unix seconds) and that are not withdrawn,
        oldest first.
        """
        query = select(steps.c.version).where(steps.c.committed_at > at).order_by(steps.c.step)
        with self.read() as conn:
            gone = withdrawn_versions(conn)
            return [version for version in conn.execute(query).scalars() if version not in gone]

    def version(self, number: int) -> WeightVersion | None:
        """One committed version; None if there is none of that number."""
        with self.read() as conn:
            return _version_of(conn, number)

    def versions(self) -> list[WeightVersion]:
        """All committed versions, oldest first."""
        with self.read() as conn:
            rows = conn.execute(select(versions).order_by(versions.c.version))
            return [_version(row) for row in rows]

    def groups_of_step(self, step: int) -> list[ClosedGroup]:
        """The groups a step consumed, in its order and as they were claimed: replay reads this.

        Raises `LostPayload` if tokens of them are missing or damaged.
        """
        with self.read() as conn:
            rows = conn.execute(
                select(groups)
                .join(consumption, consumption.c.group_id == groups.c.group_id)
                .where(consumption.c.step == step)
                .order_by(consumption.c.position)
            ).all()
            return [_read_group(conn, row, self.payloads) for row in rows]


def _closed(conn: Connection, held: Collection[str] = ()) -> Sequence[AnyRow]:
    return conn.execute(
        select(groups)
        .where(
            groups.c.state == GroupState.CLOSED.value,
            groups.c.purpose == Purpose.TRAIN.value,
            groups.c.group_id.not_in(held),
        )
        .order_by(groups.c.number)
    ).all()


def _rejected(
    conn: Connection, row: AnyRow, version: int, oldest: int, gone: Collection[int]
) -> bool:
    """Whether a group is too old to train `version`, or of versions in `gone`; then rejected."""
    sampled = sampled_versions(conn, row.group_id)
    assert sampled is not None, f"{row.group_id} is closed and holds no token"
    cause = why_withdrawn(conn, row.group_id, gone)
    if cause is None and sampled[0] < oldest:
        behind = version - sampled[0]
        cause = f"stale: its oldest token is of version {sampled[0]}, {behind} behind {version}"
    if cause is None:
        return False
    reject(conn, row.group_id, cause, wait=False)
    return True


def _read_group(conn: Connection, row: AnyRow, payloads: Payloads) -> ClosedGroup:
    """A closed group as training reads it: null rollouts without turns, no lost turns."""
    credit = conn.execute(
        select(credits)
        .join(rollouts, rollouts.c.rollout_id == credits.c.rollout_id)
        .where(rollouts.c.group_id == row.group_id)
        .order_by(rollouts.c.idx)
    ).all()
    found = turn_rows(conn, [c.rollout_id for c in credit if c.reward is not None])
    scores = scores_of_group(conn, row.group_id)
    return ClosedGroup(
        group=group_of_row(row),
        task=read_task(conn, row.task_id),
        rollouts=tuple(
            GradedRollout(
                rollout_id=c.rollout_id,
                turns=tuple(
                    turn_of(turn, payloads)
                    for turn in found.get(c.rollout_id, ())
                    if turn.state == TurnState.DONE.value
                ),
                scores=scores[c.rollout_id],
                reward=c.reward,
                advantage=c.advantage,
            )
            for c in credit
        ),
    )


def _payloads_of(conn: Connection, group_ids: Sequence[GroupId]) -> list[str]:
    query = (
        select(turns.c.request, turns.c.answer)
        .join(rollouts, rollouts.c.rollout_id == turns.c.rollout_id)
        .where(rollouts.c.group_id.in_(group_ids), turns.c.state == TurnState.DONE.value)
    )
    return [name for row in conn.execute(query) for name in row]


def _consume(conn: Connection, group: str, step: int, position: int) -> None:
    row = conn.execute(select(groups).where(groups.c.group_id == group)).one_or_none()
    if row is None or row.state != GroupState.CLOSED.value or row.purpose != Purpose.TRAIN.value:
        raise Conflict(f"{group} is {row.state if row else 'unknown'}, a step cannot consume it")
    conn.execute(insert(consumption).values(group_id=group, step=step, position=position))
    conn.execute(
        update(groups).where(groups.c.group_id == group).values(state=GroupState.CONSUMED.value)
    )
    conn.execute(update(draws).where(draws.c.draw == row.draw).values(state="consumed"))


def insert_version(conn: Connection, version: WeightVersion) -> None:
    """Add a version; raises `Conflict` if it does not follow the newest."""
    newest = conn.execute(select(func.max(versions.c.version))).scalar_one()
    if newest is None and version.version != 0:
        raise Conflict(f"version 0 (the base) must be committed before {version.version}")
    if newest is not None:
        parent = _version_of(conn, newest)
        assert parent is not None
        if version.version != newest + 1 or version.parent_state_id != parent.state_id:
            raise Conflict(
                f"version {version.version} on {version.parent_state_id} does not follow the "
                f"newest, {newest} ({parent.state_id})"
            )
    conn.execute(insert(versions).values(**version.model_dump(), committed_at=time.time()))


def _require_same(conn: Connection, known: Step, step: Step, version: WeightVersion) -> None:
    made = _version_of(conn, known.version)
    assert made is not None
    if known.group_ids != step.group_ids or not _same_weights(made, version):
        raise Conflict(f"step {step.step} is already committed, with other groups or weights")


def _same_weights(a: WeightVersion, b: WeightVersion) -> bool:
    """Whether two records tell of the same weights; bytes shipped may differ after a crash."""
    return (a.version, a.state_id, a.parent_state_id) == (b.version, b.state_id, b.parent_state_id)


def _step_of(conn: Connection, number: int) -> Step | None:
    row = conn.execute(select(steps).where(steps.c.step == number)).one_or_none()
    if row is None:
        return None
    consumed = conn.execute(
        select(consumption.c.group_id)
        .where(consumption.c.step == number)
        .order_by(consumption.c.position)
    ).scalars()
    return Step(
        step=row.step,
        version=row.version,
        group_ids=tuple(consumed),
        metrics=row.metrics,
        seconds=row.seconds,
        committed_at=row.committed_at,
    )


def _version_of(conn: Connection, number: int) -> WeightVersion | None:
    row = conn.execute(select(versions).where(versions.c.version == number)).one_or_none()
    return None if row is None else _version(row)


def _version(row: AnyRow) -> WeightVersion:
    return WeightVersion(
        version=row.version,
        state_id=row.state_id,
        parent_state_id=row.parent_state_id,
        manifest=row.manifest,
        stage=row.stage,
        bytes_shipped=row.bytes_shipped,
        bytes_full=row.bytes_full,
    )
