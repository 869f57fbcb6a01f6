"""Which way is taken: against the slow reference, which tries every way."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tradewind.weights.route import FEW, PATIENCE, ROUND_TRIP, Hop, Route, Trip

MB = 2**20


def every_way(trip: Trip, hops: list[Hop]) -> list[Route]:
    """All ways to the goal, by trying."""
    ways: list[Route] = []

    def go(at: int, way: Route) -> None:
        if at == trip.goal:
            ways.append(way)
            return
        for hop in hops:
            if hop.start == at and hop.end <= trip.goal:
                go(hop.end, (*way, hop))

    for start in trip.starts:
        go(start, ())
    return ways


def cost(way: Route) -> int:
    return sum(hop.size + ROUND_TRIP for hop in way)


trips = st.builds(
    lambda held, lag, base: Trip(held, held + lag, base),
    st.integers(0, 4),
    st.integers(1, 6),
    st.booleans(),
)


@st.composite
def maps(draw: st.DrawFn) -> tuple[Trip, list[Hop]]:
    trip = draw(trips)
    pairs = draw(st.sets(st.tuples(st.integers(0, 9), st.integers(1, 10)), max_size=6))
    sizes = st.integers(0, 8 * MB)
    shortcuts = [Hop(a, b, draw(sizes), f"{a}-{b}") for a, b in sorted(pairs) if b - a >= 2]
    singles = [hop for hop in trip.singles(draw(sizes)) if draw(st.booleans()) or hop.end % 2]
    return trip, [*shortcuts, *singles]


@settings(deadline=None)
@given(maps())
def test_no_way_is_cheaper(drawn: tuple[Trip, list[Hop]]) -> None:
    trip, hops = drawn
    ways, route = every_way(trip, hops), trip.cheapest(hops)
    if route is None:
        assert ways == []
        return
    assert all(earlier.end == later.start for earlier, later in pairwise(route))
    assert route[0].start in trip.starts and route[-1].end == trip.goal
    assert (cost(route), len(route)) == min((cost(way), len(way)) for way in ways)


@settings(deadline=None)
@given(maps())
def test_what_is_worth_reading_lies_on_a_way_of_few_objects(
    drawn: tuple[Trip, list[Hop]],
) -> None:
    trip, hops = drawn
    ways = every_way(trip, hops)
    most = max(FEW, min(map(len, ways), default=0))
    expected = {hop for way in ways if len(way) <= most for hop in way}
    assert set(trip.worth_reading(hops)) == expected


def ladder(newest: int, size: int = 1000, span: int = 16) -> list[Hop]:
    """Anchors and cumulative shortcuts up to a version, all of one size."""
    found = []
    for end in range(2, newest + 1):
        starts = {(end - 1) // span * span} | ({0} if end % span == 0 else set())
        found += [Hop(s, end, size, f"{s}-{end}") for s in sorted(starts) if end - s >= 2]
    return found


@pytest.mark.parametrize("lag", [1, 2, 3, 4, 15, 16, 17, 31, 64, 99])
@pytest.mark.parametrize("goal", [99, 96, 97, 98])
def test_small_updates_reach_any_version_in_two_objects(goal: int, lag: int) -> None:
    held = max(0, goal - lag)
    trip = Trip(held, goal, base=True)
    route = trip.cheapest(trip.singles(500) + ladder(goal))
    assert route is not None and len(route) <= 2
    from_a_rung = Trip(96 - 16, goal, base=False)
    route = from_a_rung.cheapest(from_a_rung.singles(500) + ladder(goal))
    assert route is not None and len(route) <= 2


def test_a_little_late_pool_of_a_large_model_takes_singles_not_anchors() -> None:
    trip = Trip(996, 1000, base=True)
    route = trip.cheapest(trip.singles(70 * MB) + ladder(1000, 1000 * MB))
    assert route is not None and [hop.key for hop in route] == [None] * 4


def test_a_very_late_pool_never_replays_the_run() -> None:
    trip = Trip(1000 - PATIENCE - 1, 1000, base=True)
    route = trip.cheapest(trip.singles(70 * MB) + ladder(1000, 1000 * MB))
    assert route is not None and [hop.key for hop in route] == ["0-992", "992-1000"]


def test_a_version_whose_shortcut_is_not_there_yet_is_one_single_more() -> None:
    trip = Trip(0, 99, base=True)
    route = trip.cheapest(trip.singles(500) + ladder(98))
    assert route is not None and [hop.end for hop in route] == [96, 98, 99]


def test_without_shortcuts_there_is_the_chain() -> None:
    trip = Trip(3, 500, base=True)
    route = trip.cheapest(trip.singles(500))
    assert route is not None and len(route) == 497


def test_only_few_shortcuts_are_read() -> None:
    trip = Trip(500, 999, base=True)
    worth = trip.worth_reading(trip.singles(1) + ladder(999))
    assert {hop.key for hop in worth} == {"0-992", "992-999"}
