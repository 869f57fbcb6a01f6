"""Which task comes next: a seeded permutation per epoch; rejected draws come back (promise R7).

Draw `d` of a run with N training tasks is position `d mod N` of the permutation of epoch
`d // N`, in which each kind of task is spread evenly. A draw is `open` while a group works on it,
`queued` after that group was rejected, `consumed` in the end. Queued draws go first, so that no
prompt is skipped. A draw of a task that is set aside (`aside.py`) rests as `aside`.

A draw whose rollouts keep coming back null would take the same slot for ever. From its second
rejection in a row on, 1, 3, 7, ... fresh draws are opened before it is tried again.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from sqlalchemy import Connection, func, insert, select, update

from tradewind.ledger.aside import ASIDE, tasks_aside
from tradewind.ledger.run import run_seed
from tradewind.ledger.tables import draws, tasks
from tradewind.types.errors import UserError
from tradewind.types.task import Split

_IN_TRAINING = tasks.c.split == Split.TRAIN.value


class Draw(NamedTuple):
    """One occurrence of a task in an epoch."""

    draw: int
    task_id: str
    attempt: int
    """How many of its groups were rejected."""


def next_draw(conn: Connection) -> Draw | None:
    """Take the next draw and mark it open; None if every training task is set aside.

    Raises `UserError` if there is no training task.
    """
    fresh = conn.execute(select(func.count()).select_from(draws)).scalar_one()
    queued = conn.execute(
        select(draws.c.draw, draws.c.task_id, draws.c.attempt)
        .where(draws.c.state == "queued", draws.c.not_before <= fresh)
        .order_by(draws.c.draw)
        .limit(1)
    ).one_or_none()
    if queued is not None:
        conn.execute(update(draws).where(draws.c.draw == queued.draw).values(state="open"))
        return Draw(queued.draw, queued.task_id, queued.attempt)
    n, aside = _training_tasks(conn), tasks_aside(conn)
    if n <= len(aside):
        return None
    # Those of one epoch may stand at its end and those of the next at its beginning.
    for draw in range(fresh, fresh + 2 * len(aside) + 1):
        task_id = _task_of_draw(conn, draw, n)
        state = ASIDE if task_id in aside else "open"
        conn.execute(insert(draws).values(draw=draw, task_id=task_id, state=state))
        if state == "open":
            return Draw(draw, task_id, 0)
    raise AssertionError(f"{n} tasks, {len(aside)} set aside, none of the others was drawn")


def queue_again(conn: Connection, draw: int, *, wait: bool) -> None:
    """The draw's group was rejected; `wait` lets fresh draws go first if it happened before."""
    row = conn.execute(select(draws.c.attempt, draws.c.task_id).where(draws.c.draw == draw)).one()
    attempt, state = row.attempt + 1, ASIDE if row.task_id in tasks_aside(conn) else "queued"
    fresh = conn.execute(select(func.count()).select_from(draws)).scalar_one()
    delay = 2 ** min(attempt - 1, 20) - 1 if wait else 0
    conn.execute(
        update(draws)
        .where(draws.c.draw == draw)
        .values(state=state, attempt=attempt, not_before=fresh + delay)
    )


def permutation(seed: int, epoch: int, kinds: Sequence[str]) -> tuple[int, ...]:
    """The order in which the training tasks are drawn in `epoch`; `kinds` has the kind of each.

    Random, but the m tasks of a kind lie one in each m-th part of an epoch, so any draws hold
    each kind by its share, give or take two. Left to chance, a short run hardly practises some
    kinds (3 of 64 draws where 6 are due), and the seed decides what is learned.
    """
    return _permutation(seed, epoch, tuple(kinds))


@lru_cache(maxsize=8)
def _permutation(seed: int, epoch: int, kinds: tuple[str, ...]) -> tuple[int, ...]:
    draw = random.Random(f"draws {seed} {epoch}")
    order = list(range(len(kinds)))
    draw.shuffle(order)
    of_kind: dict[str, list[int]] = {}
    for place in order:
        of_kind.setdefault(kinds[place], []).append(place)
    at: dict[int, float] = {}
    for places in of_kind.values():
        offset = draw.random()
        at |= {place: (n + offset) / len(places) for n, place in enumerate(places)}
    return tuple(sorted(order, key=at.__getitem__))


def _training_tasks(conn: Connection) -> int:
    n = conn.execute(select(func.count()).select_from(tasks).where(_IN_TRAINING)).scalar_one()
    if n == 0:
        raise UserError("the taskset has no training tasks", fix="add tasks with split 'train'")
    return int(n)


def _task_of_draw(conn: Connection, draw: int, n: int) -> str:
    found = training_tasks(conn)
    kinds = [kind for _, kind in found]
    return found[permutation(run_seed(conn), draw // n, kinds)[draw % n]][0]


def training_tasks(conn: Connection) -> list[tuple[str, str]]:
    """(id, kind) of every training task, in the order in which they were added."""
    query = select(tasks.c.task_id, tasks.c.kind).where(_IN_TRAINING).order_by(tasks.c.position)
    return [(row.task_id, row.kind) for row in conn.execute(query)]
