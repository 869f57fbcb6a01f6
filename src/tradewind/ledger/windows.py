"""The newest groups and verdicts, as alarms look at them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Select, func, select

from tradewind.ledger.database import AnyRow, Database
from tradewind.ledger.rollouts import PRIORITY
from tradewind.ledger.tables import credits, groups, outcomes, rollouts, scores, turns
from tradewind.types.group import GroupState, Purpose
from tradewind.types.ids import GroupId, RolloutId
from tradewind.types.outcome import OutcomeStatus
from tradewind.types.record import Json


@dataclass(frozen=True)
class RewardedRollout:
    """One rollout with a reward."""

    rollout_id: RolloutId
    reward: float
    tokens: int
    """Sampled in answered turns."""
    turns: int


@dataclass(frozen=True)
class RewardedGroup:
    """A training group that closed."""

    group_id: GroupId
    task_id: str
    rollouts: tuple[RewardedRollout, ...]
    version: int = 0
    """Oldest policy version that sampled any of it."""

    @property
    def mean(self) -> float:
        """Mean reward."""
        return sum(r.reward for r in self.rollouts) / len(self.rollouts)


@dataclass(frozen=True)
class GradedNull:
    """Whether one graded rollout is null, and the first word of its cause."""

    null: bool
    kind: str | None


@dataclass(frozen=True)
class WatchedRollout:
    """What behaviour signals wrote down about a rollout that earned a reward."""

    rollout_id: RolloutId
    reward: float
    acts: int | None
    """Tool calls; None if no signal of the composition counts them."""
    touched: tuple[str, ...]
    """Classes of exploits that the monitor has seen signs of."""


@dataclass(frozen=True)
class Delivery:
    """Tokens of rollouts that have ended."""

    sampled: int = 0
    delivered: int = 0
    """In answers that reached their agent whole."""


class Windows(Database):
    """Read by the controller's alarms."""

    def newest_groups(self, n: int, since: float) -> list[RewardedGroup]:
        """The newest `n` training groups that closed after `since`, oldest first."""
        newest = (
            select(groups.c.group_id, groups.c.task_id, groups.c.opened_version)
            .where(
                groups.c.purpose == Purpose.TRAIN.value,
                groups.c.state.in_([GroupState.CLOSED.value, GroupState.CONSUMED.value]),
                groups.c.closed_at > since,
            )
            .order_by(groups.c.number.desc())
            .limit(n)
        )
        with self.read() as conn:
            rows = conn.execute(newest).all()
            ids = newest.with_only_columns(groups.c.group_id)
            members, sampled = _members(conn, ids), _oldest(conn, ids)
        return [
            RewardedGroup(
                row.group_id,
                row.task_id,
                tuple(members[row.group_id]),
                sampled.get(row.group_id, row.opened_version),
            )
            for row in reversed(rows)
            if row.group_id in members
        ]

    def newest_nulls(self, n: int, since: float) -> list[GradedNull]:
        """Of the newest `n` graded rollouts those that ended after `since`, oldest first."""
        with self.read() as conn:
            graded = _newest_graded(conn, n, since)
            causes = _first_causes(conn, [row.rollout_id for row in graded if row.null])
        return [
            GradedNull(True, causes[row.rollout_id].partition(":")[0])
            if row.null
            else GradedNull(False, None)
            for row in reversed(graded)
        ]

    def newest_watched(
        self, n: int, since: float, sources: Collection[str]
    ) -> list[WatchedRollout]:
        """The newest `n` rewarded rollouts of training groups that closed after `since`, oldest
        first, with the evidence of these signals; none if there are no such signals.
        """
        if not sources:
            return []
        with self.read() as conn:
            rewarded = conn.execute(
                select(rollouts.c.rollout_id, credits.c.reward)
                .join(credits, credits.c.rollout_id == rollouts.c.rollout_id)
                .join(groups, groups.c.group_id == rollouts.c.group_id)
                .where(
                    groups.c.purpose == Purpose.TRAIN.value,
                    groups.c.closed_at > since,
                    credits.c.reward.is_not(None),
                )
                .order_by(rollouts.c.number.desc(), rollouts.c.idx.desc())
                .limit(n)
            ).all()
            rows = conn.execute(
                select(scores.c.rollout_id, scores.c.evidence)
                .where(
                    scores.c.rollout_id.in_([row.rollout_id for row in rewarded]),
                    scores.c.source.in_(sources),
                )
                .order_by(scores.c.rollout_id, scores.c.source)
            )
            evidence: dict[RolloutId, Json] = {}
            for row in rows:
                evidence.setdefault(row.rollout_id, {}).update(row.evidence)
        return [
            _watched(row.rollout_id, row.reward, evidence.get(row.rollout_id, {}))
            for row in reversed(rewarded)
        ]

    def newest_delivery(self, n: int, since: float) -> Delivery:
        """Tokens of those of the newest `n` graded rollouts that ended after `since`.

        Without those that the platform lost: where a worker died, nobody was left to deliver to.
        """
        with self.read() as conn:
            ids = [
                row.rollout_id
                for row in _newest_graded(conn, n, since)
                if row.status != OutcomeStatus.INFRA_ERROR
            ]
            rows = conn.execute(
                select(turns.c.delivered, func.sum(turns.c.tokens).label("tokens"))
                .where(turns.c.rollout_id.in_(ids))
                .group_by(turns.c.delivered)
            )
            tokens = {bool(row.delivered): int(row.tokens or 0) for row in rows}
        return Delivery(sum(tokens.values()), tokens.get(True, 0))


def _watched(rollout: RolloutId, reward: float, evidence: Json) -> WatchedRollout:
    """`acts` is the monitor's word, `call_count` that of the effort."""
    acts = evidence.get("acts", evidence.get("call_count"))
    return WatchedRollout(
        rollout_id=rollout,
        reward=reward,
        acts=acts if isinstance(acts, int) else None,
        touched=tuple(evidence.get("by_class") or ()),
    )


def _oldest(conn: Connection, ids: Select[GroupId]) -> dict[GroupId, int]:
    """The oldest version of any token, by group; groups without tokens are left out."""
    rows = conn.execute(
        select(rollouts.c.group_id, func.min(turns.c.oldest_version).label("oldest"))
        .join(turns, turns.c.rollout_id == rollouts.c.rollout_id)
        .where(rollouts.c.group_id.in_(ids), turns.c.oldest_version.is_not(None))
        .group_by(rollouts.c.group_id)
    )
    return {row.group_id: row.oldest for row in rows}


def _newest_graded(conn: Connection, n: int, since: float) -> list[AnyRow]:
    """Of the newest `n` graded rollouts those that ended after `since`, newest first.

    One walk back in the index `rollouts_by_state` for each priority, however long the run is.
    """
    query = (
        select(
            rollouts.c.rollout_id,
            rollouts.c.number,
            rollouts.c.idx,
            rollouts.c.null,
            outcomes.c.status,
            outcomes.c.at,
        )
        .join(outcomes, outcomes.c.rollout_id == rollouts.c.rollout_id)
        .where(rollouts.c.state == "graded")
        .order_by(rollouts.c.number.desc(), rollouts.c.idx.desc())
        .limit(n)
    )
    rows = [
        row
        for priority in PRIORITY.values()
        for row in conn.execute(query.where(rollouts.c.priority == priority)).all()
    ]
    rows.sort(key=lambda row: (row.number, row.idx), reverse=True)
    return [row for row in rows[:n] if row.at > since]


def _first_causes(conn: Connection, ids: Sequence[RolloutId]) -> dict[RolloutId, str]:
    """Of the null scores of each rollout, one cause."""
    query = (
        select(scores.c.rollout_id, func.min(scores.c.cause).label("cause"))
        .where(scores.c.rollout_id.in_(ids), scores.c.value.is_(None))
        .group_by(scores.c.rollout_id)
    )
    return {row.rollout_id: row.cause for row in conn.execute(query)}


def _members(conn: Connection, ids: Select[GroupId]) -> dict[GroupId, list[RewardedRollout]]:
    sampled = (
        select(
            turns.c.rollout_id,
            func.sum(turns.c.tokens).label("tokens"),
            func.count().label("turns"),
        )
        .join(rollouts, rollouts.c.rollout_id == turns.c.rollout_id)
        .where(rollouts.c.group_id.in_(ids))
        .group_by(turns.c.rollout_id)
        .subquery()
    )
    rows = conn.execute(
        select(
            rollouts.c.group_id,
            rollouts.c.rollout_id,
            credits.c.reward,
            sampled.c.tokens,
            sampled.c.turns,
        )
        .join(credits, credits.c.rollout_id == rollouts.c.rollout_id)
        .outerjoin(sampled, sampled.c.rollout_id == rollouts.c.rollout_id)
        .where(rollouts.c.group_id.in_(ids), credits.c.reward.is_not(None))
        .order_by(rollouts.c.number, rollouts.c.idx)
    )
    found: dict[GroupId, list[RewardedRollout]] = {}
    for row in rows:
        member = RewardedRollout(
            row.rollout_id, row.reward, int(row.tokens or 0), int(row.turns or 0)
        )
        found.setdefault(row.group_id, []).append(member)
    return found
