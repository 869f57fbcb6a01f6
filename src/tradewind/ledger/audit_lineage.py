"""What was trained, once, and into which weights (promises R7, W2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, func, select

from tradewind.ledger.audit_prompts import n_of
from tradewind.ledger.database import AnyRow
from tradewind.ledger.tables import attestations, consumption, groups, steps, versions
from tradewind.types.group import Purpose


def consumption_counted(conn: Connection) -> str:
    """`96 groups in 12 steps`."""
    return f"{n_of(_count(conn, consumption), 'group')} in {n_of(_count(conn, steps), 'step')}"


def counted(conn: Connection) -> str:
    """`13 versions, 12 steps, 24 proofs`."""
    tables = {"version": versions, "step": steps, "proof": attestations}
    return ", ".join(n_of(_count(conn, table), noun) for noun, table in tables.items())


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
    """Versions follow each other; steps are numbered without a gap, each with its version."""
    rows = conn.execute(select(versions).order_by(versions.c.version)).all()
    yield from _chain(rows)
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


def _count(conn: Connection, table: Any) -> int:
    return int(conn.execute(select(func.count()).select_from(table)).scalar_one())
