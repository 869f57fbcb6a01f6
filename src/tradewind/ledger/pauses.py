"""Pauses: training stands still because an alarm or a person says so, until a person ends it."""

from __future__ import annotations

from sqlalchemy import Connection

from tradewind.ledger.database import Database
from tradewind.ledger.events import note
from tradewind.ledger.groups import newest_version
from tradewind.ledger.returns import order_return
from tradewind.ledger.rows import read_meta, write_meta
from tradewind.types.returned import ReturnOrder
from tradewind.types.trust import PERSON, Pause
from tradewind.types.weights import PoolOrder

PAUSED, RESUMED = "training_paused", "training_resumed_at"
ORDER = "pool_order"
"""Keys of the run table."""


class Pauses(Database):
    """Written by the controller and by `tradewind trust`; read by whoever waits."""

    def pause_training(self, pause: Pause) -> bool:
        """Stop opening and leasing training groups; False if it is paused already.

        A pause that sends the pools back, further than the one that is there, takes its place, and
        so does one that sends the trainer there, too. The orders to pools and trainer are written
        in the same transaction.
        """
        with self.write(durable=True) as conn:
            known = read_meta(conn, PAUSED)
            if known and not _further(pause, Pause.model_validate(known)):
                return False
            _pause(conn, pause)
        return True

    def ask_return(self, order: ReturnOrder) -> None:
        """Have the trainer go back before it trains anything more; training pauses if it has not.

        Raises `UserError` if there is no earlier version of that number.
        """
        with self.write(durable=True) as conn:
            if not read_meta(conn, PAUSED):
                cause = f"to go back to version {order.back_to} ({order.who}: {order.why})"
                _pause(conn, Pause(alarm=PERSON, cause=cause, at=order.at))
            order_return(conn, order)

    def resume_training(self, now: float, who: str) -> Pause | None:
        """Let training go on; what it was paused for, or None if it was not.

        Alarms look only at what comes after `now`. Pools that were sent back follow the newest
        version again.
        """
        with self.write(durable=True) as conn:
            known = read_meta(conn, PAUSED)
            if not known:
                return None
            write_meta(conn, PAUSED, {})
            write_meta(conn, RESUMED, now)
            pause = Pause.model_validate(known)
            note(conn, "training.resumed", pause.alarm, f"by {who}")
            if pause.pools is not None:
                _order(conn, None)
        return pause

    def pool_order(self) -> PoolOrder | None:
        """Where pools were last sent by an alarm or its end; None if none ever was."""
        with self.read() as conn:
            known = read_meta(conn, ORDER)
        return None if known is None else PoolOrder.model_validate(known)

    def paused(self) -> Pause | None:
        """Why training is paused, if it is."""
        with self.read() as conn:
            known = read_meta(conn, PAUSED)
        return Pause.model_validate(known) if known else None

    def resumed_at(self) -> float:
        """When a person last let training go on; 0 if nobody had to."""
        with self.read() as conn:
            return float(read_meta(conn, RESUMED) or 0.0)


def _pause(conn: Connection, pause: Pause) -> None:
    write_meta(conn, PAUSED, pause.model_dump(mode="json"))
    note(conn, "training.paused", pause.alarm, pause.cause)
    if pause.pools is None:
        return
    _order(conn, pause.pools)
    note(conn, "pools.sent_back", pause.alarm, f"to version {pause.pools}")
    if pause.trainer and pause.pools < newest_version(conn):
        order_return(
            conn, ReturnOrder(back_to=pause.pools, who=pause.who, why=pause.cause, at=pause.at)
        )


def _further(pause: Pause, known: Pause) -> bool:
    """Whether a pause sends pools back further than the one that is there, or the trainer, too."""
    if pause.pools is None or known.pools is None:
        return pause.pools is not None
    too = pause.trainer and not known.trainer and pause.pools == known.pools
    return pause.pools < known.pools or too


def _order(conn: Connection, version: int | None) -> None:
    before = read_meta(conn, ORDER)
    number = 1 if before is None else PoolOrder.model_validate(before).number + 1
    value = PoolOrder(number=number, version=version).model_dump(mode="json")
    write_meta(conn, ORDER, value)
