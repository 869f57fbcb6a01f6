"""Returns: an order that waits for the trainer, and the version by which it was carried out."""

from __future__ import annotations

from sqlalchemy import Connection, insert, select, update

from tradewind.ledger.database import Database
from tradewind.ledger.events import note
from tradewind.ledger.groups import newest_version, outstanding_groups, reject
from tradewind.ledger.rows import read_meta, write_meta
from tradewind.ledger.steps import insert_version
from tradewind.ledger.tables import groups, returns
from tradewind.ledger.withdrawn import why_withdrawn, withdrawn_versions
from tradewind.types.errors import UserError
from tradewind.types.group import GroupState, Purpose
from tradewind.types.returned import Return, ReturnOrder
from tradewind.types.weights import WeightVersion

ORDER = "return_order"
"""Key of the run table; an empty value: there is none."""


class Returns(Database):
    """Called by the trainer; `Pauses.ask_return` gives the order."""

    def return_order(self) -> ReturnOrder | None:
        """Where the trainer is to go back to, if anywhere."""
        with self.read() as conn:
            known = read_meta(conn, ORDER)
        return ReturnOrder.model_validate(known) if known else None

    def refuse_return(self, order: ReturnOrder, why: str) -> None:
        """It cannot be done: the order is taken off, with an event."""
        with self.write(durable=True) as conn:
            _take_off(conn, order)
            note(conn, "return.refused", f"version {order.back_to}", why)

    def commit_return(self, order: ReturnOrder, version: WeightVersion) -> Return:
        """The version with the old weights, the record of it and the end of the order, together.

        In the same transaction every training group that has tokens of a version that is withdrawn
        by it is rejected, and its task queued again; those that stay open are answered by
        `version` or newer from now on. What is sampled later by a pool that has not followed yet
        is rejected when it would be claimed. Raises `Conflict` if it does not follow the newest.
        """
        made = Return(version=version.version, **order.model_dump())
        with self.write(durable=True) as conn:
            insert_version(conn, version)
            conn.execute(insert(returns).values(**made.model_dump()))
            _take_off(conn, order)
            gone = withdrawn_versions(conn)
            for group in outstanding_groups(conn):
                if (cause := why_withdrawn(conn, group, gone)) is not None:
                    reject(conn, group, cause, wait=False)
            still_open = (groups.c.state == GroupState.OPEN.value) & (
                groups.c.purpose == Purpose.TRAIN.value
            )
            conn.execute(update(groups).where(still_open).values(min_version=version.version))
            note(conn, "trainer.returned", f"version {version.version}", made.sentence)
        return made

    def returns(self) -> list[Return]:
        """All that were carried out, oldest first."""
        with self.read() as conn:
            rows = conn.execute(select(returns).order_by(returns.c.version)).mappings()
            return [Return(**row) for row in rows]


def order_return(conn: Connection, order: ReturnOrder) -> None:
    """Give the order; another one that waits is replaced.

    Raises `UserError` if there is no earlier version of that number.
    """
    newest = newest_version(conn)
    if order.back_to >= newest:
        raise UserError(
            "there is no such version to go back to",
            value=order.back_to,
            fix=f"give one from 0 to {newest - 1}"
            if newest
            else "wait for the first step: the newest version is the base",
        )
    write_meta(conn, ORDER, order.model_dump(mode="json"))
    note(conn, "return.ordered", f"version {order.back_to}", order.sentence)


def _take_off(conn: Connection, order: ReturnOrder) -> None:
    """Unless another one has taken its place meanwhile."""
    if read_meta(conn, ORDER) == order.model_dump(mode="json"):
        write_meta(conn, ORDER, {})
