"""Evaluations: groups of one greedy rollout over the tasks of a split, by one version."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, insert, select, update

from tradewind.ledger.database import AnyRow, Database
from tradewind.ledger.groups import TAINTED, open_group
from tradewind.ledger.tables import credits, evals, groups, rollouts, tasks
from tradewind.types.errors import Conflict, UserError
from tradewind.types.group import GroupState
from tradewind.types.record import Record
from tradewind.types.task import Split

PASSED = 0.5
"""A rollout passes with a reward of at least this."""
_Z95 = 1.959963984540054


class PassRate(Record):
    """Example: `PassRate(pass_rate=0.7, n=200, low=0.633, high=0.759)`."""

    pass_rate: float
    """Share in [0, 1]; 0.0 if n is 0."""
    n: int
    low: float
    """Lower end of the Wilson 95 % interval."""
    high: float


class EvalResult(Record):
    """What is known of an evaluation; final when `finished`."""

    name: str
    version: int
    split: Split
    total: int
    """Tasks to answer."""
    done: int
    """Tasks with a final result, nulls and tainted ones included."""
    finished: bool
    overall: PassRate
    kinds_seen: PassRate
    """Over kinds that training tasks have, too."""
    kinds_unseen: PassRate
    """Over kinds that only this split has."""
    nulls: int
    """Tasks without a result after all refills; not in n."""
    tainted: int
    """Tasks that other versions answered after all repeats; not in n."""
    repeated: int
    """Rollouts thrown away because another version answered."""


class Evals(Database):
    """Requested by `run`, opened by the controller."""

    def request_eval(
        self, name: str, version: int, split: Split = Split.HELDOUT, limit: int | None = None
    ) -> None:
        """Ask for an evaluation of `version` over the first `limit` tasks of `split`.

        Repeating it does nothing; raises `Conflict` if `name` is taken by another one, `UserError`
        if the split has no tasks.
        """
        wanted = {"split": split.value, "version": version, "limit": limit}
        with self.write(durable=True) as conn:
            known = conn.execute(select(evals).where(evals.c.name == name)).one_or_none()
            if known is not None:
                if (known.split, known.version, known.limit) != tuple(wanted.values()):
                    raise Conflict(f"evaluation {name!r} exists, of version {known.version}")
                return
            if not _task_rows(conn, split.value, limit):
                raise UserError(
                    "there is no task to evaluate on",
                    value=split.value,
                    fix="add tasks of this split to the taskset",
                )
            conn.execute(insert(evals).values(name=name, requested_at=time.time(), **wanted))

    def open_eval_groups(self) -> int:
        """Open the groups of every requested evaluation, all at once; how many were opened."""
        with self.read() as conn:  # the usual case, none, needs no writer's lock
            if conn.execute(select(evals.c.name).where(~evals.c.opened)).first() is None:
                return 0
        opened = 0
        with self.write() as conn:
            requested = select(evals).where(~evals.c.opened).order_by(evals.c.requested_at)
            for row in conn.execute(requested).all():
                for task in _task_rows(conn, row.split, row.limit):
                    open_group(conn, task.task_id, 1, (row.version, row.version), origin=row.name)
                    opened += 1
                conn.execute(update(evals).where(evals.c.name == row.name).values(opened=True))
        return opened

    def eval_result(self, name: str) -> EvalResult:
        """What is known of an evaluation so far; raises `KeyError` if nobody asked for it."""
        with self.read() as conn:
            row = conn.execute(select(evals).where(evals.c.name == name)).one_or_none()
            if row is None:
                raise KeyError(name)
            wanted = _task_rows(conn, row.split, row.limit)
            seen = set(
                conn.execute(
                    select(tasks.c.kind).where(tasks.c.split == Split.TRAIN.value).distinct()
                ).scalars()
            )
            tried = _tried(conn, name)
        last = {entry.task_id: entry for entry in tried}  # a later attempt replaces an earlier one
        rejected = [e for e in last.values() if e.state == GroupState.REJECTED.value]
        answered = [e for e in last.values() if e.state == GroupState.EVALUATED.value]
        done = len(rejected) + len(answered)
        return EvalResult(
            name=name,
            version=row.version,
            split=Split(row.split),
            total=len(wanted),
            done=done,
            finished=bool(row.opened) and done == len(wanted),
            overall=_pass_rate(e.reward for e in answered),
            kinds_seen=_pass_rate(e.reward for e in answered if e.kind in seen),
            kinds_unseen=_pass_rate(e.reward for e in answered if e.kind not in seen),
            nulls=sum(not _is_tainted(e) for e in rejected),
            tainted=sum(_is_tainted(e) for e in rejected),
            repeated=sum(_is_tainted(e) for e in tried),
        )

    def evals(self) -> list[str]:
        """Names of all evaluations, in the order of their request."""
        with self.read() as conn:
            return list(conn.execute(select(evals.c.name).order_by(evals.c.requested_at)).scalars())


def wilson(passed: int, n: int) -> tuple[float, float]:
    """Wilson score interval of a share at 95 % (E. B. Wilson, JASA 22, 1927).

    >>> tuple(round(x, 3) for x in wilson(5, 10))
    (0.237, 0.763)
    """
    if n == 0:
        return 0.0, 1.0
    share, z2 = passed / n, _Z95**2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z95 / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def _pass_rate(rewards: Iterable[float]) -> PassRate:
    verdicts = [reward >= PASSED for reward in rewards]
    n, passed = len(verdicts), sum(verdicts)
    low, high = wilson(passed, n)
    return PassRate(pass_rate=passed / n if n else 0.0, n=n, low=low, high=high)


def _task_rows(conn: Connection, split: str, limit: int | None) -> Sequence[AnyRow]:
    query = select(tasks.c.task_id).where(tasks.c.split == split).order_by(tasks.c.position)
    return conn.execute(query if limit is None else query.limit(limit)).all()


def _tried(conn: Connection, name: str) -> Sequence[AnyRow]:
    """Every group of the evaluation with its kind and reward, oldest first."""
    rewards = (
        select(rollouts.c.group_id, credits.c.reward)
        .join(credits, credits.c.rollout_id == rollouts.c.rollout_id)
        .where(credits.c.reward.is_not(None))
        .subquery()
    )
    return conn.execute(
        select(groups.c.task_id, groups.c.state, groups.c.cause, tasks.c.kind, rewards.c.reward)
        .join(tasks, tasks.c.task_id == groups.c.task_id)
        .outerjoin(rewards, rewards.c.group_id == groups.c.group_id)
        .where(groups.c.eval_name == name)
        .order_by(groups.c.number)
    ).all()


def _is_tainted(row: AnyRow) -> bool:
    return bool(row.cause) and row.cause.startswith(TAINTED)
