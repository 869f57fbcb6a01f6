"""Rollouts: lease, renew, end, expire.

    waiting --lease_next--> running --finish--> finished --write_scores--> graded
                               \\--expire---------------------------------/ (null: lease lost)
    finished --put_off--> finished, for a verdict that comes later
    any of the first three --reject of the group--> cancelled

Only a running rollout accepts turns, heartbeats and an outcome; afterwards they are refused
with `Conflict` (promise R5), which also ends the model key.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    Connection,
    Double,
    Select,
    bindparam,
    case,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from tradewind.ledger import keys as bearer
from tradewind.ledger.database import AnyRow, Database
from tradewind.ledger.events import note
from tradewind.ledger.run import read_task
from tradewind.ledger.scores import grade
from tradewind.ledger.tables import groups, keys, outcomes, rollouts, tasks, turns
from tradewind.ledger.tenants import Tenant, check_quota
from tradewind.types.errors import Conflict
from tradewind.types.group import Purpose
from tradewind.types.ids import RolloutId
from tradewind.types.outcome import Outcome, OutcomeStatus
from tradewind.types.record import Json
from tradewind.types.score import Score
from tradewind.types.turn import TurnState

PRIORITY = {Purpose.EVAL: 0, Purpose.TRAIN: 1}
"""Lower is leased and graded first."""

# Statements are made once: for each lease or call of the model, building them would cost more than
# running them.
_RENEWED = bindparam("now", type_=Double) + rollouts.c.lease_ttl
_ROW = select(rollouts).where(rollouts.c.rollout_id == bindparam("of"))
_SET = update(rollouts).where(rollouts.c.rollout_id == bindparam("of"))
_RENEW = _SET.where(rollouts.c.state == "running").values(
    lease_until=case((rollouts.c.lease_until > _RENEWED, rollouts.c.lease_until), else_=_RENEWED)
)
_ANY_WAITING = select(rollouts.c.rollout_id).where(rollouts.c.state == "waiting").limit(1)
_NEXT = (
    select(rollouts.c.rollout_id, groups.c.task_id)
    .join(groups, groups.c.group_id == rollouts.c.group_id)
    .where(rollouts.c.state == "waiting", rollouts.c.priority == bindparam("priority"))
    .order_by(rollouts.c.number, rollouts.c.idx)
    .limit(1)
)
"""The oldest waiting rollout: one step in the index `rollouts_by_state`, not a sort."""
_NEXT_SERVED = _NEXT.where(groups.c.opened_version.in_(bindparam("served", expanding=True)))
_RUNNING = select(func.count()).select_from(rollouts).where(rollouts.c.state == "running")
_NEW_KEY = insert(keys)
_OF_KEY = select(keys.c.rollout_id).where(
    keys.c.digest == bindparam("digest"), keys.c.kind == bindparam("kind")
)
_OUTCOME = select(outcomes).where(outcomes.c.rollout_id == bindparam("of"))
_NEW_OUTCOME = insert(outcomes)
_TURN_STATES = select(turns.c.state).where(turns.c.rollout_id == bindparam("of"))
_LOSE_TURNS = (
    update(turns)
    .where(turns.c.rollout_id == bindparam("of"), turns.c.state == TurnState.INTENT.value)
    .values(state=TurnState.LOST.value)
)

_OF_A_LEASE = (
    "worker",
    "tenant",
    "request",
    "leased_at",
    "lease_until",
    "deadline",
    "token_budget",
)
"""Columns that are empty while nobody holds a lease."""
LIVE = ("waiting", "running", "finished")
"""States of a rollout whose scores are still to come."""


@dataclass(frozen=True)
class LeaseTerms:
    """Who may hold a rollout, and for how long, in seconds."""

    ttl_s: float
    """Without heartbeat or model traffic for so long, the lease is lost."""
    deadline_s: float
    """The agent has so long in all."""
    max_running: int
    """No lease while so many rollouts run."""
    training: bool = True
    """Whether training rollouts are leased, too."""
    token_budget: int | None = None
    """Most tokens that its model key may sample; None: no limit."""
    tenant: Tenant | None = None
    """Whose quotas and kinds of tasks bound it; None: the run's own worker."""
    request: str | None = None
    """The caller's id of this request: repeated, it gives the same rollout again."""


@dataclass(frozen=True)
class LeasedRollout:
    """What a worker is told, and the only place where its keys are in clear."""

    rollout_id: RolloutId
    task_id: str
    input: Json
    model_key: str
    result_key: str
    deadline: float


class Rollouts(Database):
    """Called by the controller."""

    def lease_next(
        self, worker: str, now: float, terms: LeaseTerms, served: Collection[int]
    ) -> LeasedRollout | None:
        """Hand the next waiting rollout to `worker`: evaluations first, then the oldest group.

        An evaluation is leased only if its version is in `served` (versions that some pool
        serves), a training rollout only if `terms.training`. None if nothing can be leased. Two
        workers never get the same rollout; a repeated `terms.request` gives the rollout that it
        gave before, if that still runs, with new keys. Raises `OverQuota` if there is one for the
        tenant, but its quota is used up.
        """
        with self.read() as conn:  # the usual case, none, needs no writer's lock
            if conn.execute(_ANY_WAITING).first() is None and _lent_before(conn, terms) is None:
                return None
        with self.write() as conn:
            before = _lent_before(conn, terms)
            if before is not None:
                renew(conn, before.rollout_id, now)
                return _leased(conn, before, before.deadline)
            row = _next_waiting(conn, terms, served)
            if row is None:
                return None
            if terms.tenant is not None:
                check_quota(conn, terms.tenant, now)
            deadline = now + terms.deadline_s
            held = {
                "state": "running",
                "worker": worker,
                "tenant": None if terms.tenant is None else terms.tenant.name,
                "request": terms.request,
                "leased_at": now,
                "lease_until": now + terms.ttl_s,
                "lease_ttl": terms.ttl_s,
                "deadline": deadline,
                "token_budget": _budget(terms),
            }
            conn.execute(_SET, {"of": row.rollout_id, **held})
            return _leased(conn, row, deadline)

    def unlease(self, rollout: RolloutId) -> None:
        """Take back a lease that reached nobody; the rollout waits again and its keys are dead."""
        with self.write() as conn:
            require_running(conn, rollout)
            conn.execute(delete(keys).where(keys.c.rollout_id == rollout))
            conn.execute(_SET, {"of": rollout, "state": "waiting", **dict.fromkeys(_OF_A_LEASE)})

    def rollout_of_key(self, digest: str, kind: str) -> RolloutId | None:
        """The rollout that a `model` or `result` key (by its SHA-256 digest) was made for."""
        with self.read() as conn:
            found = conn.execute(_OF_KEY, {"digest": digest, "kind": kind})
            return found.scalar_one_or_none()

    def renew(self, rollout: RolloutId, now: float) -> None:
        """A heartbeat: the lease holds for another `ttl_s`. Raises `Conflict` after the end."""
        with self.write() as conn:
            renew(conn, rollout, now)

    def renew_all(self, now: float) -> None:
        """Renew every running lease: a controller that was away could not be told of heartbeats."""
        with self.write() as conn:
            conn.execute(
                update(rollouts)
                .where(rollouts.c.state == "running")
                .values(lease_until=now + rollouts.c.lease_ttl)
            )

    def finish(self, rollout: RolloutId, outcome: Outcome, now: float) -> OutcomeStatus:
        """Record the outcome; the first one wins and the model key is dead from here on.

        Returns the status as it counts: a gradable outcome without a single call of the model is
        an ENV_ERROR, and one without a single answered call an INFRA_ERROR. An identical repeat
        returns the same; a different one, or one for a lost lease, raises `Conflict`.
        """
        reported = outcome.model_dump(mode="json")
        with self.write() as conn:
            known = conn.execute(_OUTCOME, {"of": rollout}).one_or_none()
            if known is not None and known.reported == reported:
                return OutcomeStatus(known.status)
            if known is not None:
                raise Conflict(f"{rollout} already ended with another outcome ({known.status})")
            require_running(conn, rollout)
            status, detail = _as_it_counts(conn, rollout, outcome)
            _record_outcome(conn, rollout, status, detail, reported, now)
            conn.execute(_SET, {"of": rollout, "state": "finished"})
            lose_open_turns(conn, rollout)
        return status

    def expire(self, now: float) -> list[RolloutId]:
        """End every running rollout whose lease ran out, or whose deadline passed a lease ago.

        Each becomes null with cause `infra_error` and an event; `refill` replaces it.
        """
        lost = or_(rollouts.c.lease_until < now, rollouts.c.deadline + rollouts.c.lease_ttl < now)
        with self.read() as conn:  # the usual case, none, needs no writer's lock
            if not _running(conn, lost):
                return []
        with self.write() as conn:
            expired = _running(conn, lost)
            for row in expired:
                _lose(conn, row, now)
        return [row.rollout_id for row in expired]


def renew(conn: Connection, rollout: RolloutId, now: float) -> None:
    """Renew the lease of a running rollout; raises `Conflict` otherwise."""
    if conn.execute(_RENEW, {"of": rollout, "now": now}).rowcount == 0:
        require_running(conn, rollout)  # says why


def require_running(conn: Connection, rollout: RolloutId) -> AnyRow:
    """The rollout's row; raises `Conflict` with a sentence unless it is running."""
    row = conn.execute(_ROW, {"of": rollout}).one_or_none()
    if row is None:
        raise Conflict(f"there is no rollout {rollout}")
    if row.state != "running":
        raise Conflict(f"{rollout} is over ({row.state}); nothing can be added to it")
    return row


def cancel_rollouts(conn: Connection, group: str) -> None:
    """End every rollout of a group that is given up; their keys are dead."""
    ids = conn.execute(
        select(rollouts.c.rollout_id).where(
            rollouts.c.group_id == group, rollouts.c.state.in_(LIVE)
        )
    ).scalars()
    for rollout in ids.all():
        conn.execute(_SET, {"of": rollout, "state": "cancelled"})
        lose_open_turns(conn, rollout)


def lose_open_turns(conn: Connection, rollout: RolloutId) -> None:
    """What was dispatched and is not back when the rollout ends, never comes back."""
    conn.execute(_LOSE_TURNS, {"of": rollout})


def _next_waiting(conn: Connection, terms: LeaseTerms, served: Collection[int]) -> AnyRow | None:
    if conn.execute(_RUNNING).scalar_one() >= terms.max_running:
        return None
    first = None
    if served:
        asked = {"priority": PRIORITY[Purpose.EVAL], "served": list(served)}
        first = _first(conn, terms, _NEXT_SERVED, asked)
    if first is None and terms.training:
        first = _first(conn, terms, _NEXT, {"priority": PRIORITY[Purpose.TRAIN]})
    return first


def _first(
    conn: Connection, terms: LeaseTerms, query: Select[Any], asked: Mapping[str, object]
) -> AnyRow | None:
    """What `query` finds among the tasks that the tenant may see."""
    if terms.tenant is not None and terms.tenant.kinds is not None:
        query = query.join(tasks, tasks.c.task_id == groups.c.task_id)
        query = query.where(tasks.c.kind.in_(terms.tenant.kinds))
    return conn.execute(query, asked).one_or_none()


def _lent_before(conn: Connection, terms: LeaseTerms) -> AnyRow | None:
    """The running rollout that this very request leased, if its answer was lost on the way."""
    if terms.request is None:
        return None
    name = None if terms.tenant is None else terms.tenant.name
    return conn.execute(
        select(rollouts.c.rollout_id, rollouts.c.deadline, groups.c.task_id)
        .join(groups, groups.c.group_id == rollouts.c.group_id)
        .where(
            rollouts.c.request == terms.request,
            rollouts.c.state == "running",
            rollouts.c.tenant.is_not_distinct_from(name),
        )
        .limit(1)
    ).one_or_none()


def _budget(terms: LeaseTerms) -> int | None:
    own = None if terms.tenant is None else terms.tenant.token_budget
    return min((n for n in (terms.token_budget, own) if n is not None), default=None)


def _leased(conn: Connection, row: AnyRow, deadline: float) -> LeasedRollout:
    minted = {kind: bearer.mint(kind) for kind in ("model", "result")}
    conn.execute(
        _NEW_KEY,
        [
            {"digest": bearer.digest(key), "rollout_id": row.rollout_id, "kind": kind}
            for kind, key in minted.items()
        ],
    )
    return LeasedRollout(
        rollout_id=row.rollout_id,
        task_id=row.task_id,
        input=read_task(conn, row.task_id).input,
        model_key=minted["model"],
        result_key=minted["result"],
        deadline=deadline,
    )


def _as_it_counts(
    conn: Connection, rollout: RolloutId, outcome: Outcome
) -> tuple[OutcomeStatus, str | None]:
    if not outcome.status.gradable:
        return outcome.status, outcome.detail
    states = conn.execute(_TURN_STATES, {"of": rollout}).scalars().all()
    if not states:
        return OutcomeStatus.ENV_ERROR, "the model was never called"
    if TurnState.DONE.value not in states:
        return OutcomeStatus.INFRA_ERROR, "no call of the model was answered"
    return outcome.status, outcome.detail


def _record_outcome(
    conn: Connection,
    rollout: RolloutId,
    status: OutcomeStatus,
    detail: str | None,
    reported: Json,
    now: float,
) -> None:
    told = {"status": status.value, "detail": detail, "reported": reported, "at": now}
    conn.execute(_NEW_OUTCOME, {"rollout_id": rollout, **told})


def _running(conn: Connection, condition: Any) -> list[AnyRow]:
    return list(
        conn.execute(select(rollouts).where(rollouts.c.state == "running", condition)).all()
    )


def _lose(conn: Connection, row: AnyRow, now: float) -> None:
    held = now - row.leased_at
    detail = f"lease lost: no word from worker {row.worker} (held for {held:.0f} s)"
    outcome = Outcome(status=OutcomeStatus.INFRA_ERROR, detail=detail)
    _record_outcome(
        conn, row.rollout_id, outcome.status, detail, outcome.model_dump(mode="json"), now
    )
    lose_open_turns(conn, row.rollout_id)
    null = Score(
        rollout_id=row.rollout_id,
        source="lease",
        source_version="1",
        value=None,
        cause=f"{outcome.status.value}: {detail}",
    )
    grade(conn, row.rollout_id, [null])
    note(conn, "lease.lost", row.rollout_id, detail)
