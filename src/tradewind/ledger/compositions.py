"""Compositions: what the reward is made of, by version; the newest one is in use.

A group is pinned to the composition in use when a grader first claims one of its rollouts, so that
a component added while a run is going begins with a whole group (`scores.py`).
"""

from __future__ import annotations

import time

from sqlalchemy import Connection, func, insert, select, update

from tradewind.ledger.database import Database
from tradewind.ledger.events import note
from tradewind.ledger.tables import compositions
from tradewind.types.record import Json


class Compositions(Database):
    """Called by graders and by `tradewind rewards use`."""

    def use_composition(self, version: str, data: Json, *, again: bool = True) -> bool:
        """Put a composition in use from the next group on; whether that changed anything.

        With `again=False` one that was in use before stays where it is: a grader that restarts with
        the recipe's must not undo what was put in use while the run was going.
        """
        with self.write(durable=True) as conn:
            known = conn.execute(
                select(compositions.c.position).where(compositions.c.version == version)
            ).scalar_one_or_none()
            newest = conn.execute(select(func.max(compositions.c.position))).scalar_one()
            if known is not None and (known == newest or not again):
                return False
            position = 0 if newest is None else newest + 1
            if known is None:
                conn.execute(
                    insert(compositions).values(
                        version=version, position=position, data=data, registered_at=time.time()
                    )
                )
            else:
                conn.execute(
                    update(compositions)
                    .where(compositions.c.version == version)
                    .values(position=position)
                )
            names = ", ".join(signal["name"] for signal in data["signals"])
            note(conn, "reward.composition", version, f"rewards are made of {names} from here on")
        return True

    def composition(self, version: str | None = None) -> tuple[str, Json] | None:
        """Version and data of a composition, or of the one in use; None if there is none."""
        query = select(compositions).order_by(compositions.c.position.desc()).limit(1)
        if version is not None:
            query = query.where(compositions.c.version == version)
        with self.read() as conn:
            row = conn.execute(query).one_or_none()
        return None if row is None else (row.version, row.data)


def newest_composition(conn: Connection) -> str | None:
    """Version of the composition in use."""
    return conn.execute(
        select(compositions.c.version).order_by(compositions.c.position.desc()).limit(1)
    ).scalar_one_or_none()


def composition_data(conn: Connection, version: str | None) -> Json | None:
    """The data of one composition; None for None."""
    if version is None:
        return None
    return dict(
        conn.execute(
            select(compositions.c.data).where(compositions.c.version == version)
        ).scalar_one()
    )
