"""Which versions a return has taken out of the policy's history, and what they sampled.

0 - 1 - 2 - 3 - 4 - 5          5 is a return to 2: the policy came by 0, 1, 2, 5;
            `-------'          3 and 4 are withdrawn, whoever sampled with them is not trained
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlalchemy import Connection, select

from tradewind.ledger.groups import newest_version
from tradewind.ledger.tables import returns, rollouts, turns
from tradewind.types.ids import GroupId
from tradewind.types.turn import TurnState

WITHDRAWN = "withdrawn: "
"""How the cause of a group begins that was sampled by a version that was taken back."""


def off_the_way(newest: int, back_to: Mapping[int, int]) -> frozenset[int]:
    """Versions before `newest` that it does not come from; `back_to` has the goal of each return.

    A return to a withdrawn version brings that one back, and what led to it.
    """
    left, at = set(range(newest)), newest
    while at > 0:
        at = back_to.get(at, at - 1)
        left.discard(at)
    return frozenset(left)


def read_returns(conn: Connection) -> dict[int, int]:
    """Where each return went, by the version that it made."""
    rows = conn.execute(select(returns.c.version, returns.c.back_to))
    return {row.version: row.back_to for row in rows}


def withdrawn_versions(conn: Connection) -> frozenset[int]:
    """Those of now; usually none."""
    back_to = read_returns(conn)
    return off_the_way(newest_version(conn), back_to) if back_to else frozenset()


def why_withdrawn(conn: Connection, group: GroupId, gone: Collection[int]) -> str | None:
    """The cause to reject a group with of which a turn may have tokens of versions in `gone`."""
    if not gone:
        return None
    spans = conn.execute(
        select(turns.c.oldest_version, turns.c.newest_version)
        .join(rollouts, rollouts.c.rollout_id == turns.c.rollout_id)
        .where(
            rollouts.c.group_id == group,
            rollouts.c.null == 0,
            turns.c.state == TurnState.DONE.value,
        )
        .distinct()
    )
    found = {v for oldest, newest in spans for v in range(oldest, newest + 1) if v in gone}
    if not found:
        return None
    return f"{WITHDRAWN}it was sampled across version {max(found)}, which was taken back"
