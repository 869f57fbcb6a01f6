"""Groups that nulls keep from their size."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, func, select, update

from tradewind.ledger.database import AnyRow
from tradewind.ledger.events import note
from tradewind.ledger.scores import scores_of_group
from tradewind.ledger.tables import groups, rollouts
from tradewind.types.group import GroupState, Purpose
from tradewind.types.ids import GroupId


def short_of_rollouts(conn: Connection) -> Sequence[AnyRow]:
    """Open groups that cannot reach their size with the rollouts they have."""
    useful = func.count() - func.sum(rollouts.c.null)
    return conn.execute(
        select(
            groups.c.group_id,
            groups.c.number,
            groups.c.purpose,
            groups.c.size,
            groups.c.task_id,
            groups.c.draw,
            func.count().label("total"),
            func.sum(rollouts.c.null).label("nulls"),
            useful.label("useful"),
        )
        .join(rollouts, rollouts.c.group_id == groups.c.group_id)
        .where(groups.c.state == GroupState.OPEN.value)
        .group_by(groups.c.group_id)
        .having(useful < groups.c.size)
        .order_by(groups.c.number)
    ).all()


def goes_on(row: AnyRow, min_size: int | None) -> bool:
    """Whether a training group has `min_size` rollouts without the nulls (None: never enough)."""
    return row.purpose == Purpose.TRAIN.value and min_size is not None and row.useful >= min_size


def shrink(conn: Connection, row: AnyRow) -> None:
    """The group is complete with the rollouts that are not null; its size says so from now on."""
    conn.execute(
        update(groups).where(groups.c.group_id == row.group_id).values(size=int(row.useful))
    )
    detail = (
        f"goes on with {row.useful} of {row.size} rollouts: {row.nulls} came back null, "
        f"{last_of(null_causes(conn, row.group_id))}"
    )
    note(conn, "group.short", row.group_id, detail)


def null_causes(conn: Connection, group: GroupId) -> list[str]:
    """Of all its null scores, in the order of the rollouts."""
    graded = scores_of_group(conn, group)
    return [s.cause or "" for scores in graded.values() for s in scores if s.value is None]


def last_of(causes: Sequence[str]) -> str:
    """The newest cause, for a sentence."""
    return f"the last because: {causes[-1]}" if causes else "cause unknown"
