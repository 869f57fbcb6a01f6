"""What was trained, once, and into which weights (promises R7, W2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, func, select

from tradewind.ledger.audit_prompts import n_of
from tradewind.ledger.database import AnyRow
from tradewind.ledger.tables import attestations, consumption, groups, steps, versions
from tradewind.ledger.withdrawn import read_returns, withdrawn_versions
from tradewind.types.group import Purpose


def consumption_counted(conn: Connection) -> str:
    """`96 groups in 12 steps`, `..., 16 of them into versions that were withdrawn`."""
    said = f"{n_of(_count(conn, consumption), 'group')} in {n_of(_count(conn, steps), 'step')}"
    gone = withdrawn_versions(conn)
    if not gone:
        return said
    query = (
        select(func.count())
        .select_from(consumption)
        .join(steps, steps.c.step == consumption.c.step)
        .where(steps.c.version.in_(gone))
    )
    return f"{said}, {conn.execute(query).scalar_one()} of them into versions that were withdrawn"


def counted(conn: Connection) -> str:
    """`13 versions, 12 steps, 24 proofs`, `...; version 10 returns to 4; withdrawn: 5, 6, 7`."""
    tables = {"version": versions, "step": steps, "proof": attestations}
    said = ", ".join(n_of(_count(conn, table), noun) for noun, table in tables.items())
    back_to = read_returns(conn)
    if not back_to:
        return said
    went = ", ".join(f"version {made} returns to {goal}" for made, goal in sorted(back_to.items()))
    gone = ", ".join(map(str, sorted(withdrawn_versions(conn))))
    return f"{said}; {went}; withdrawn: {gone}"


def trained_once(conn: Connection) -> Iterator[str]:
    """No group twice, no draw twice, nothing held out, no empty step."""
    by_group = (
        select(consumption.c.group_id, func.count().label("n"))
        .group_by(consumption.c.group_id)
        .having(func.count() > 1)
    )
    for row in conn.execute(by_group):
        yield f"{row.group_id} was trained {row.n} times"
    by_draw = (
        select(groups.c.draw, func.count().label("n"))
        .join(consumption, consumption.c.group_id == groups.c.group_id)
        .group_by(groups.c.draw)
        .having(func.count() > 1)
    )
    for row in conn.execute(by_draw):
        yield f"draw {row.draw} was trained {row.n} times"
    query = select(consumption.c.group_id, groups.c.purpose)
    for row in conn.execute(query.outerjoin(groups, groups.c.group_id == consumption.c.group_id)):
        if row.purpose != Purpose.TRAIN.value:
            what = "is held out" if row.purpose else "does not exist"
            yield f"{row.group_id} {what} and was trained"
    positions: dict[int, list[int]] = {}
    for row in conn.execute(select(consumption).order_by(consumption.c.position)):
        positions.setdefault(row.step, []).append(row.position)
    numbers = set(conn.execute(select(steps.c.step)).scalars())
    for step in sorted(numbers | positions.keys()):
        found = positions.get(step, [])
        if step not in numbers:
            yield f"{len(found)} groups were trained in step {step}, which does not exist"
        elif not found or found != list(range(len(found))):
            yield f"step {step} consumed groups at the places {found}, not one after the other"


def unbroken(conn: Connection) -> Iterator[str]:
    """Versions follow each other; steps are numbered without a gap, each with its version; returns
    have the weights that they went back to.
    """
    rows = conn.execute(select(versions).order_by(versions.c.version)).all()
    yield from _chain(rows)
    yield from _returned(conn, rows)
    made: dict[int, int] = {}
    for number, row in enumerate(conn.execute(select(steps).order_by(steps.c.step))):
        if row.step != number:
            yield f"step {number} is missing"
            break
        made[row.version] = row.step
    for row in rows:
        if row.stage == "rl" and row.version not in made:
            yield f"version {row.version} is of stage rl, and no step made it"
    states = {row.version: row.state_id for row in rows}
    for step in (step for version, step in made.items() if version not in states):
        yield f"step {step} made a version that is not there"
    for row in conn.execute(select(attestations)):
        if states.get(row.version, row.state_id) != row.state_id:
            yield f"pool {row.pool} proved {row.state_id} as version {row.version}, it is another"


def _chain(rows: Sequence[AnyRow]) -> Iterator[str]:
    for number, row in enumerate(rows):
        if row.version != number:
            yield f"version {number} is missing"
            return
        if number and row.parent_state_id != rows[number - 1].state_id:
            yield f"version {number} does not follow {number - 1}"


def _returned(conn: Connection, rows: Sequence[AnyRow]) -> Iterator[str]:
    by_number = {row.version: row for row in rows}
    back_to = read_returns(conn)
    for version in sorted({row.version for row in rows if row.stage == "return"} ^ back_to.keys()):
        yield f"version {version} is a return, or a record says so, but not both"
    for version, goal in sorted(back_to.items()):
        made, old = by_number.get(version), by_number.get(goal)
        if made is None or old is None or goal >= version or made.state_id != old.state_id:
            yield f"version {version} does not have the weights of {goal}, to which it returned"


def _count(conn: Connection, table: Any) -> int:
    return int(conn.execute(select(func.count()).select_from(table)).scalar_one())
