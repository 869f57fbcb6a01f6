"""Pools: their last report, and their proofs of each swap."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import Connection, select

from tradewind.ledger.database import Database
from tradewind.ledger.rows import insert_new, put
from tradewind.ledger.tables import attestations, beats, pools
from tradewind.types.weights import Attestation, PoolReport


class Pools(Database):
    """Reports come by the controller; the gateway routes by them."""

    def record_pool(self, report: PoolReport, now: float | None = None) -> list[int]:
        """Keep a pool's report, beat and new attestations; the versions now on record.

        `now` is the receiver's clock: a pool with a wrong clock must not look fresh or dead.
        """
        at = time.time() if now is None else now
        body = report.model_copy(update={"attestations": ()}).model_dump(mode="json")
        with self.write() as conn:
            values = {"version": report.version, "report": body, "at": at}
            put(conn, pools, {"pool": report.pool}, values)
            put(conn, beats, {"process": f"pool {report.pool}"}, _beat(conn, report, at))
            for attestation in report.attestations:
                insert_new(conn, attestations, attestation.model_dump())
        return sorted({attestation.version for attestation in report.attestations})

    def pools(self, since: float = 0.0) -> list[PoolReport]:
        """Last report of every pool heard of at or after `since`, by name.

        `at` is the time at which the controller received it.
        """
        query = select(pools).where(pools.c.at >= since).order_by(pools.c.pool)
        with self.read() as conn:
            return [PoolReport(**{**row.report, "at": row.at}) for row in conn.execute(query)]

    def attestations(self) -> list[Attestation]:
        """Every proof of a swap, in the order of activation."""
        query = select(attestations).order_by(attestations.c.activated_at)
        with self.read() as conn:
            return [Attestation(**row) for row in conn.execute(query).mappings()]


def _beat(conn: Connection, report: PoolReport, at: float) -> dict[str, Any]:
    """A pool has no ledger, so its beat is written by whoever records its report."""
    doing = f"{report.state.value} version {report.version}"
    if report.detail:
        doing += f": {report.detail}"
    known = conn.execute(
        select(beats).where(beats.c.process == f"pool {report.pool}")
    ).one_or_none()
    since = known.since if known is not None and known.doing == doing else at
    return {"doing": doing, "waiting_for": None, "owner": None, "since": since, "at": at}
