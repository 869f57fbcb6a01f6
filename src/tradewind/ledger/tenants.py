"""Tenants: customers that share a run, each with a worker key and quotas of its own.

The run's own worker key belongs to no tenant and has no quota. A tenant's key is in the ledger as
its SHA-256 digest only, and what one tenant leased no other can see, renew or report.
"""

from __future__ import annotations

import time

from pydantic import Field
from sqlalchemy import Connection, and_, func, insert, select, update

from tradewind.ledger.database import AnyRow, Database
from tradewind.ledger.tables import outcomes, rollouts, tenants
from tradewind.types.errors import Conflict, TradewindError
from tradewind.types.ids import RolloutId
from tradewind.types.record import Record

WINDOW_S = 60.0
_FULL_RETRY_S = 1.0


class Tenant(Record):
    """Example: `Tenant(name="acme", max_open=16, per_minute=120, kinds=("refunds",))`."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")
    max_open: int = Field(default=32, ge=1)
    """Leases that it may hold at the same time."""
    per_minute: int = Field(default=600, ge=1)
    """Leases that it may take in any 60 seconds."""
    token_budget: int | None = Field(default=None, ge=1)
    """Most tokens that one of its rollouts may sample; the run's own limit holds too."""
    kinds: tuple[str, ...] | None = None
    """Kinds of tasks that it is given, so that it never sees another product's; None: all."""


class TenantUse(Record):
    """A tenant and what it holds now."""

    tenant: Tenant
    open: int
    """Leases that it holds."""
    last_minute: int
    """Leases that it took in the last 60 seconds."""
    revoked: bool


class RolloutView(Record):
    """What a worker may read about a rollout that was leased with its key."""

    rollout_id: RolloutId
    state: str
    """waiting, running, finished (waits for the grader), graded or cancelled."""
    status: str | None
    """Of its outcome, as it counts; None before the end."""
    detail: str | None


class OverQuota(TradewindError):
    """A tenant asked for more than its quota; `retry_after_s` says when to ask again."""

    def __init__(self, sentence: str, retry_after_s: float) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(sentence)


class Tenants(Database):
    """Called by the controller."""

    def add_tenant(self, tenant: Tenant, digest: str) -> None:
        """Record a tenant and its key's digest; raises `Conflict` if the name is taken."""
        with self.write(durable=True) as conn:
            if _row(conn, tenant.name) is not None:
                raise Conflict(f"there is a tenant {tenant.name!r} already; rotate its key instead")
            values = {**tenant.model_dump(mode="json"), "digest": digest, "added_at": time.time()}
            conn.execute(insert(tenants).values(values))

    def rotate_tenant(self, name: str, digest: str) -> None:
        """Give a tenant a new key; the old one is dead. Raises `KeyError` if there is none."""
        self._change(name, digest=digest, revoked=False)

    def revoke_tenant(self, name: str) -> None:
        """No more leases for it; what it holds may end. Raises `KeyError` if there is none."""
        self._change(name, revoked=True)

    def tenant_of_key(self, digest: str) -> Tenant | None:
        """Whose worker key that is; None if nobody's, or if it was revoked."""
        with self.read() as conn:
            row = conn.execute(
                select(tenants).where(tenants.c.digest == digest, ~tenants.c.revoked)
            ).one_or_none()
        return None if row is None else _tenant(row)

    def tenants(self, now: float) -> list[TenantUse]:
        """All tenants by name, with what they hold."""
        with self.read() as conn:
            rows = conn.execute(select(tenants).order_by(tenants.c.name)).all()
            return [
                TenantUse(
                    tenant=_tenant(row),
                    open=_open(conn, row.name),
                    last_minute=len(_taken(conn, row.name, now, None)),
                    revoked=row.revoked,
                )
                for row in rows
            ]

    def rollout_of_tenant(self, rollout: RolloutId, tenant: str | None) -> RolloutView | None:
        """A rollout that was leased by this tenant; None if there is none, or it is another's."""
        with self.read() as conn:
            row = conn.execute(
                select(
                    rollouts.c.rollout_id, rollouts.c.state, outcomes.c.status, outcomes.c.detail
                )
                .outerjoin(outcomes, outcomes.c.rollout_id == rollouts.c.rollout_id)
                .where(
                    rollouts.c.rollout_id == rollout,
                    rollouts.c.worker.is_not(None),
                    rollouts.c.tenant.is_not_distinct_from(tenant),
                )
            ).one_or_none()
        return None if row is None else RolloutView(**row._mapping)

    def _change(self, name: str, **values: object) -> None:
        with self.write(durable=True) as conn:
            if _row(conn, name) is None:
                raise KeyError(name)
            conn.execute(update(tenants).where(tenants.c.name == name).values(values))


def check_quota(conn: Connection, tenant: Tenant, now: float) -> None:
    """Raise `OverQuota` with a sentence if the tenant may not take one more lease now."""
    held = _open(conn, tenant.name)
    if held >= tenant.max_open:
        raise OverQuota(
            f"tenant {tenant.name} holds {held} open leases and may hold {tenant.max_open}; "
            "report or cancel one first",
            _FULL_RETRY_S,
        )
    taken = _taken(conn, tenant.name, now, tenant.per_minute)
    if len(taken) >= tenant.per_minute:
        left = min(taken) + WINDOW_S - now
        raise OverQuota(
            f"tenant {tenant.name} took {len(taken)} leases within a minute, which is its quota; "
            f"the next one is free in {left:.0f} s",
            max(left, 0.1),
        )


def _open(conn: Connection, name: str) -> int:
    held = and_(rollouts.c.tenant == name, rollouts.c.state == "running")
    return conn.execute(select(func.count()).select_from(rollouts).where(held)).scalar_one()


def _taken(conn: Connection, name: str, now: float, limit: int | None) -> list[float]:
    """When its latest leases within the window were taken, newest first."""
    query = (
        select(rollouts.c.leased_at)
        .where(rollouts.c.tenant == name, rollouts.c.leased_at > now - WINDOW_S)
        .order_by(rollouts.c.leased_at.desc())
    )
    return list(conn.execute(query if limit is None else query.limit(limit)).scalars())


def _row(conn: Connection, name: str) -> AnyRow | None:
    return conn.execute(select(tenants).where(tenants.c.name == name)).one_or_none()


def _tenant(row: AnyRow) -> Tenant:
    return Tenant(
        name=row.name,
        max_open=row.max_open,
        per_minute=row.per_minute,
        token_budget=row.token_budget,
        kinds=None if row.kinds is None else tuple(row.kinds),
    )
