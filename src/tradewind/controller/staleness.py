"""How many groups may be outstanding, and which weights may answer them. Pure functions.

AReaL's bound (arXiv 2505.24298, section 5.1): with B groups per step and staleness S, at most
(S + v + 1) B groups may have been opened when version v serves. The i-th step consumes the
oldest B, so with c steps committed the outstanding ones are at most (S + 1 - (c - v)) B: a pool
that lags behind the trainer takes its lag off the room.

Versions are counted as they were published. A return to an earlier version is one more, though it
undoes steps: a token's age is never less than the updates between its weights and those that it
trains, so the bound holds over a return as well. Pools that have not come to the return yet serve
what it withdrew, or something older, and do not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Room:
    """Room for training groups.

    Example: newest 7, pools at 7 and 6, S = 2, B = 8: `Room(limit=16, min_version=6)`.
    """

    limit: int
    """Training groups that may be outstanding; 0 while no pool is fresh enough."""
    min_version: int
    """Older weights must not answer: then every token is at most S behind when it is trained, and
    none is of a version that was withdrawn."""


def oldest_fresh(newest: int, max_staleness: int, returned: int) -> int:
    """The oldest version that may answer; `returned` is the one that the last return made, or 0."""
    return max(newest - max_staleness, returned)


def room(
    newest: int,
    served: Iterable[int],
    max_staleness: int,
    groups_per_step: int,
    returned: int = 0,
) -> Room:
    """The room, given the newest committed version and the versions that live pools serve.

    Pools more than S behind, or behind the last return, do not count; the gateway leaves them out
    because of `min_version`.
    """
    oldest = oldest_fresh(newest, max_staleness, returned)
    fresh = [version for version in served if version >= oldest]
    if not fresh:
        return Room(limit=0, min_version=oldest)
    lag = max(0, newest - min(fresh))
    return Room(limit=(max_staleness + 1 - lag) * groups_per_step, min_version=newest - lag)
