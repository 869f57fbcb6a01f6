"""Turns: intent before dispatch, completion after, in the engine's own ids (promises R1, R3)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, exists, func, select, update

from tradewind.ledger.database import AnyRow, Database
from tradewind.ledger.events import note
from tradewind.ledger.payloads import LostPayload, Payloads
from tradewind.ledger.rollouts import renew
from tradewind.ledger.rows import insert_new
from tradewind.ledger.run import run_seed
from tradewind.ledger.tables import groups, keys, rollouts, turns
from tradewind.types.errors import Conflict, ParentLost
from tradewind.types.group import Purpose
from tradewind.types.ids import GroupId, RolloutId, TurnId
from tradewind.types.turn import Turn, TurnState


@dataclass(frozen=True)
class Session:
    """What the gateway knows about the holder of a model key."""

    rollout_id: RolloutId
    group_id: GroupId
    purpose: Purpose
    version: int | None
    """The only version that may answer (evaluation); None: any version the pools serve."""
    min_version: int
    """Pools with older weights must not answer: the tokens would be too stale to train on."""
    open: bool
    """False after the rollout's end: refuse with 409."""
    deadline: float
    """Unix seconds."""
    seed: int
    """Of this rollout, 63 bits, from the run's seed."""
    token_budget: int | None = None
    """Most tokens that it may sample over all its turns; None: no limit."""
    dismissed: bool = False
    """Its budget is used up, and the agent was told so."""


_OF_THE_REQUEST = {"prompt_ids", "messages", "tools"}
"""Fields that are large and stay as at the intent; an answer's payload repeats the others."""


# Made once: with every call of the model, building them would cost more than running them.
_FINISH = update(turns).where(
    turns.c.turn_id == bindparam("of"), turns.c.state == TurnState.INTENT.value
)
_BEFORE = turns.alias("before")
_FINISH_AFTER = _FINISH.where(
    exists().where(_BEFORE.c.turn_id == bindparam("after"), _BEFORE.c.state == TurnState.DONE.value)
)
_DELIVER = update(turns).where(turns.c.turn_id == bindparam("of")).values(delivered=True)


class Turns(Database):
    """Called by the gateway."""

    def session(self, key_digest: str) -> Session | None:
        """The session of a model key, by the digest of the key (`ledger.keys.digest`).

        None if no such key was ever made (401).
        """
        with self.read() as conn:
            row = conn.execute(
                select(rollouts, groups.c.purpose, groups.c.opened_version, groups.c.min_version)
                .join(keys, keys.c.rollout_id == rollouts.c.rollout_id)
                .join(groups, groups.c.group_id == rollouts.c.group_id)
                .where(keys.c.digest == key_digest, keys.c.kind == "model")
            ).one_or_none()
            seed = run_seed(conn)
        if row is None:
            return None
        purpose = Purpose(row.purpose)
        return Session(
            rollout_id=row.rollout_id,
            group_id=row.group_id,
            purpose=purpose,
            version=row.opened_version if purpose is Purpose.EVAL else None,
            min_version=row.min_version,
            open=row.state == "running",
            deadline=row.deadline,
            seed=rollout_seed(seed, row.rollout_id),
            token_budget=row.token_budget,
            dismissed=row.dismissed,
        )

    def sampled_tokens(self, rollout: RolloutId) -> int:
        """Of all its turns, lost ones included: what counts against its budget."""
        query = select(func.sum(turns.c.tokens)).where(turns.c.rollout_id == rollout)
        with self.read() as conn:
            return int(conn.execute(query).scalar_one() or 0)

    def dismiss(self, rollout: RolloutId, why: str) -> None:
        """Its agent was told that the budget is used up: every later call is refused."""
        with self.write() as conn:
            gone = update(rollouts).where(rollouts.c.rollout_id == rollout)
            conn.execute(gone.values(dismissed=True))
            note(conn, "rollout.budget", rollout, why)

    def turns(self, rollout: RolloutId) -> list[Turn]:
        """All turns of a rollout, lost ones and open intents included, in the order of arrival."""
        with self.read() as conn:
            rows = turn_rows(conn, [rollout]).get(rollout, [])
        return [turn_of(row, self.payloads) for row in rows]

    def write_intent(self, turn: Turn) -> None:
        """Record a turn before the pool is called, and renew the lease.

        Raises `Conflict` if the rollout is over, or the id is taken by another turn. Repeating the
        same intent does nothing.
        """
        assert turn.state is TurnState.INTENT, turn.turn_id
        request = self.payloads.put(turn.model_dump_json())
        with self.write() as conn:
            renew(conn, turn.rollout_id, turn.started_at)
            values = {"turn_id": turn.turn_id, "request": request, **_columns(turn)}
            if insert_new(conn, turns, values):
                return
            known = _row(conn, turn.turn_id)
            if known is None or known.state != TurnState.INTENT.value or known.request != request:
                raise Conflict(f"turn {turn.turn_id} is already there, with other content")

    def finish_turn(self, turn: Turn) -> None:
        """Record the completion of a turn, and renew the lease.

        Raises `Conflict` if the rollout is over or the turn was lost: its tokens must then not be
        shown to the agent as part of the rollout. Raises `ParentLost` if the turn that it extends
        has no tokens here: a crash of the database's server took them back, and who sampled them
        lives on. Repeating it with the same tokens does nothing.
        """
        assert turn.finished_at is not None, turn.turn_id
        check_completion(turn)
        answer = self.payloads.put(turn.model_dump_json(exclude=_OF_THE_REQUEST))
        with self.write() as conn:
            values = {"answer": answer, **_columns(turn)}
            if turn.parent is None:
                finished = conn.execute(_FINISH, {"of": turn.turn_id, **values})
            else:
                at = {"of": turn.turn_id, "after": turn.parent}
                finished = conn.execute(_FINISH_AFTER, {**at, **values})
            if finished.rowcount == 1:
                renew(conn, turn.rollout_id, turn.finished_at)
                return
            known = _row(conn, turn.turn_id)
            if known is None:
                raise Conflict(f"turn {turn.turn_id} has no intent")
            if known.state == TurnState.LOST.value:
                raise Conflict(f"turn {turn.turn_id} was given up before its answer came")
            if known.state == TurnState.INTENT.value:
                raise ParentLost(f"turn {turn.turn_id} extends {turn.parent}, which has no tokens")
            if turn_of(known, self.payloads).completion != turn.completion:
                raise Conflict(f"turn {turn.turn_id} is done, with other tokens")

    def deliver_turns(self, delivered: Sequence[TurnId]) -> None:
        """Note that these answers reached their agents whole. Allowed after the end, too."""
        with self.write() as conn:
            conn.execute(_DELIVER, [{"of": turn} for turn in delivered])

    def lose_turn(self, turn: TurnId, tokens: int = 0) -> None:
        """Give up a turn whose answer will not come, after so many sampled tokens; a turn that is
        done stays done.
        """
        with self.write() as conn:
            conn.execute(
                update(turns)
                .where(turns.c.turn_id == turn, turns.c.state == TurnState.INTENT.value)
                .values(state=TurnState.LOST.value, tokens=tokens)
            )

    def open_intents(self) -> list[TurnId]:
        """Turns without an answer yet; after a restart of the gateway, those it lost."""
        with self.read() as conn:
            return list(
                conn.execute(
                    select(turns.c.turn_id)
                    .where(turns.c.state == TurnState.INTENT.value)
                    .order_by(turns.c.started_at)
                ).scalars()
            )


def check_completion(turn: Turn) -> None:
    """Assert that ids, log-probabilities and version spans of a finished turn belong together."""
    assert turn.state is TurnState.DONE and turn.completion is not None, turn.turn_id
    done = turn.completion
    n = len(done.output_ids)
    spanned = sum(span.count for span in done.spans)
    assert n > 0, f"{turn.turn_id} is DONE without a token; call lose_turn"
    assert len(done.logprobs) == n == spanned, (turn.turn_id, n, len(done.logprobs), spanned)
    assert all(math.isfinite(p) and p <= 1e-3 for p in done.logprobs), turn.turn_id


def turn_rows(conn: Connection, ids: Sequence[RolloutId]) -> dict[RolloutId, list[AnyRow]]:
    """Rows of the turns of several rollouts in one query, each in the order of arrival."""
    found: dict[RolloutId, list[AnyRow]] = {}
    rows = conn.execute(
        select(turns).where(turns.c.rollout_id.in_(ids)).order_by(turns.c.rollout_id, turns.c.idx)
    )
    for row in rows:
        found.setdefault(row.rollout_id, []).append(row)
    return found


def turn_of(row: AnyRow, payloads: Payloads) -> Turn:
    """A row of `turns` as a record, with its tokens; raises `LostPayload`, which names the turn.

    State and delivery are the columns', the rest is the payloads'.
    """
    try:
        fields = payloads.get(row.request)
        if row.answer is not None:
            fields |= payloads.get(row.answer)
    except LostPayload as error:
        raise LostPayload(f"turn {row.turn_id}: {error}") from error
    return Turn.model_validate({**fields, "state": row.state, "delivered": row.delivered})


def _columns(turn: Turn) -> dict[str, Any]:
    done = turn.completion
    versions = [span.version for span in done.spans] if done else []
    return {
        "rollout_id": turn.rollout_id,
        "idx": turn.index,
        "state": turn.state.value,
        "delivered": turn.delivered,
        "oldest_version": min(versions, default=None),
        "newest_version": max(versions, default=None),
        "tokens": len(done.output_ids) if done else None,
        "pool": done.pool if done else None,
        "started_at": turn.started_at,
        "finished_at": turn.finished_at,
    }


def _row(conn: Connection, turn: TurnId) -> AnyRow | None:
    return conn.execute(select(turns).where(turns.c.turn_id == turn)).one_or_none()


def rollout_seed(run_seed: int, rollout: RolloutId) -> int:
    """63 bits of SHA-256 over run seed and rollout id: independent between rollouts."""
    digest = hashlib.sha256(f"{run_seed} {rollout}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
