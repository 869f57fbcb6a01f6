"""Which way a late pool takes: the cheapest of chain, shortcuts, and base with anchor.

    held ──► single ──► single ──► ... ──► goal          the chain: one hop a version
    held ──► shortcut ──────────────────► goal
    base ──► anchor ──► shortcut ───────► goal           if the base checkpoint is at hand

Pure: it knows hops and their sizes, no bucket. A hop costs its bytes and a round trip. Up to
`PATIENCE` versions the cheapest way is taken. Beyond that, no way of more objects than needed
(two, while shortcuts are published) is looked at, so that no pool ever replays the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

ROUND_TRIP = 2**20
"""Bytes that a hop costs besides its own: what 56 Mbit/s carry in 150 ms."""
PATIENCE = 16
"""Versions over which the chain may be taken although shortcuts exist: if a run has lasted long, a
few singles are a small part of an anchor. Without that, a pool that is a little late would have to
fetch so much that it could never come closer."""
FEW = 2
"""Objects that a way may always have."""


@dataclass(frozen=True, slots=True)
class Hop:
    """One delta. Example: `Hop(16, 23, 81_000, "shortcuts/00000023-00000016-….json.zst")`."""

    start: int
    end: int
    size: int
    """Bytes; an estimate before the delta is read."""
    key: str | None = None
    """Name of the shortcut; None for the single that version `end` was published with."""


Route = tuple[Hop, ...]
"""Each hop starts where the one before it ends."""


@dataclass(frozen=True, slots=True)
class Trip:
    """From the version that is held (or from the base) to a later one."""

    held: int
    goal: int
    base: bool
    """Whether version 0 is at hand although another one is held."""

    @property
    def starts(self) -> set[int]:
        """Versions at hand."""
        return {self.held, 0} if self.base else {self.held}

    def singles(self, size: int) -> list[Hop]:
        """The chain, hop by hop, from the earliest version at hand on; all of one size."""
        return [Hop(end - 1, end, size) for end in range(min(self.starts) + 1, self.goal + 1)]

    def worth_reading(self, hops: Sequence[Hop]) -> list[Hop]:
        """Those that lie on a way of few objects, whatever their sizes."""
        to = _distances(self.starts, ((hop.start, hop.end) for hop in _upwards(hops)))
        back = _distances({self.goal}, ((hop.end, hop.start) for hop in reversed(_upwards(hops))))
        if self.goal not in to:
            return []
        most = max(FEW, to[self.goal])
        return [
            hop
            for hop in hops
            if hop.start in to and hop.end in back and to[hop.start] + 1 + back[hop.end] <= most
        ]

    def cheapest(self, hops: Sequence[Hop]) -> Route | None:
        """The way to take; None if there is none. Ties go to fewer objects."""
        hops = _upwards(hops)
        needed = _distances(self.starts, ((hop.start, hop.end) for hop in hops)).get(self.goal)
        if needed is None:
            return None
        most = None if self.goal - self.held <= PATIENCE else max(FEW, needed)
        return _cheapest(self.starts, self.goal, hops, most)


def _upwards(hops: Iterable[Hop]) -> list[Hop]:
    """By end, so that whatever leads to a version comes before whatever starts there."""
    return sorted(hops, key=lambda hop: (hop.end, hop.start))


def _distances(starts: set[int], edges: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Fewest hops from a start; no edge may come before one that leads to its start."""
    found = dict.fromkeys(starts, 0)
    for start, end in edges:
        if start in found:
            found[end] = min(found.get(end, found[start] + 1), found[start] + 1)
    return found


def _cheapest(starts: set[int], goal: int, hops: list[Hop], most: int | None) -> Route | None:
    """The cheapest way of at most `most` hops (None: any number)."""
    layers = 1 if most is None else most
    # (cost, hops) of the cheapest way to a version so far
    best: dict[int, tuple[int, Route]] = dict.fromkeys(starts, (0, ()))
    for _ in range(layers):
        before = best if most is None else dict(best)
        for hop in hops:
            if hop.start not in before:
                continue
            cost, way = before[hop.start]
            candidate = (cost + hop.size + ROUND_TRIP, (*way, hop))
            known = best.get(hop.end)
            if known is None or (candidate[0], len(way) + 1) < (known[0], len(known[1])):
                best[hop.end] = candidate
    found = best.get(goal)
    return None if found is None else found[1]
