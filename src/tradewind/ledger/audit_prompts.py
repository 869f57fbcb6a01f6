"""Every prompt accounted for: the draws, and the groups that worked on them."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection, func, select

from tradewind.ledger.draws import permutation, training_tasks
from tradewind.ledger.run import run_seed
from tradewind.ledger.tables import draws, groups, rollouts, tasks
from tradewind.types.group import GroupState, Purpose
from tradewind.types.task import Split

_WORDS = {"consumed": "trained", "open": "in work", "queued": "queued again", "aside": "set aside"}


def n_of(number: int, noun: str) -> str:
    """`1 draw`, `2 draws`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def counted(conn: Connection) -> str:
    """`128 draws: 96 trained, 24 in work, 8 queued again`."""
    query = (
        select(draws.c.state, func.count().label("n"))
        .group_by(draws.c.state)
        .order_by(draws.c.state)
    )
    found = {row.state: row.n for row in conn.execute(query)}
    parts = [f"{n} {_WORDS.get(state, state)}" for state, n in found.items()]
    return n_of(sum(found.values()), "draw") + (f": {', '.join(parts)}" if parts else "")


def accounted(conn: Connection) -> Iterator[str]:
    """Draws without a gap in the seed's order, each with the groups that its state asks for."""
    yield from _order(conn)
    yield from _attempts(conn)
    yield from _groups(conn)


def _order(conn: Connection) -> Iterator[str]:
    found = training_tasks(conn)
    seed, n, kinds = run_seed(conn), len(found), tuple(kind for _, kind in found)
    held_out = set(
        conn.execute(select(tasks.c.task_id).where(tasks.c.split != Split.TRAIN.value)).scalars()
    )
    for expected, row in enumerate(conn.execute(select(draws).order_by(draws.c.draw))):
        if row.draw != expected:
            yield f"draw {expected} was skipped"
            return
        if row.task_id in held_out:
            yield f"draw {expected} took {row.task_id}, a held-out task"
        elif row.task_id != found[permutation(seed, expected // n, kinds)[expected % n]][0]:
            yield f"draw {expected} took task {row.task_id}, not the one the seed puts there"


def _attempts(conn: Connection) -> Iterator[str]:
    """A draw has one group per attempt: all rejected but the one in work or trained."""
    alive = (GroupState.OPEN.value, GroupState.CLOSED.value)
    found: dict[int, list[str]] = {}
    for draw, state in conn.execute(
        select(groups.c.draw, groups.c.state).where(groups.c.draw.is_not(None))
    ):
        found.setdefault(draw, []).append(state)
    for row in conn.execute(select(draws).order_by(draws.c.draw)):
        states = found.get(row.draw, [])
        live = sum(state in alive for state in states)
        if live != (1 if row.state == "open" else 0):
            yield f"draw {row.draw} is {row.state} with {live} live groups"
        trained = states.count(GroupState.CONSUMED.value)
        if trained != (1 if row.state == "consumed" else 0):
            yield f"draw {row.draw} is {row.state} and was trained {trained} times"
        rejected = states.count(GroupState.REJECTED.value)
        if rejected != row.attempt:
            yield f"draw {row.draw} was tried again {row.attempt} times, {rejected} were rejected"


def _groups(conn: Connection) -> Iterator[str]:
    """Numbered without a gap, each for one purpose, each rejected one with a cause."""
    for number, row in enumerate(conn.execute(select(groups).order_by(groups.c.number))):
        if row.number != number:
            yield f"group {number} is missing"
            return
        if (row.draw is None) != (row.purpose == Purpose.EVAL.value):
            yield f"{row.group_id} is for {row.purpose} with draw {row.draw}"
        if row.state == GroupState.REJECTED.value and not row.cause:
            yield f"{row.group_id} was rejected without a cause"
    members = (
        select(rollouts.c.group_id, func.count().label("n"), func.max(rollouts.c.idx).label("last"))
        .group_by(rollouts.c.group_id)
        .subquery()
    )
    query = select(groups.c.group_id, groups.c.size, members.c.n, members.c.last)
    for row in conn.execute(query.outerjoin(members, members.c.group_id == groups.c.group_id)):
        if row.n is None or row.n < row.size or row.last + 1 != row.n:
            yield f"{row.group_id} has {row.n or 0} rollouts of {row.size}, or a gap among them"
