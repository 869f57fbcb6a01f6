"""Are two result sets the same? Pure comparison, without a database.

A result set is a column count and rows of plain cells: None, int, float, str, or `[hex]` (a blob).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

Row = Sequence[Any]

REL_TOL = 1e-6
ABS_TOL = 1e-9


def difference(expected: Sequence[Row], got: Sequence[Row], *, ordered: bool) -> str | None:
    """None if the rows are the same, else one sentence for people.

    Rows are compared as a multiset, or in order if `ordered`. Names of columns do not count,
    their number and order does. Whole numbers must be equal; a whole number and a real one, or
    two real ones, may differ by `REL_TOL` of the larger (or by `ABS_TOL` near zero).
    """
    if expected and got and len(expected[0]) != len(got[0]):
        return f"{len(expected[0])} columns expected, {len(got[0])} returned"
    if len(expected) != len(got):
        return f"{len(expected)} rows expected, {len(got)} returned"
    if all(same_row(a, b) for a, b in zip(expected, got, strict=True)):
        return None
    if ordered:
        return "the rows differ, or their order does"
    return None if _matches(expected, got) else "the rows differ"


def same_row(a: Row, b: Row) -> bool:
    """Whether two rows of equal length hold the same cells."""
    return len(a) == len(b) and all(same_cell(x, y) for x, y in zip(a, b, strict=True))


def same_cell(a: Any, b: Any) -> bool:
    """Whether two cells are equal, type by type; numbers as `difference` says."""
    if type(a) is int and type(b) is int:
        return a == b
    if _is_number(a) and _is_number(b):
        return math.isclose(a, b, rel_tol=REL_TOL, abs_tol=ABS_TOL)
    return type(a) is type(b) and a == b


def _matches(expected: Sequence[Row], got: Sequence[Row]) -> bool:
    """Whether the rows can be paired so that each pair is the same.

    Being close is not transitive, so pairing greedily could fail where a pairing exists: within
    each shape (the row with its numbers masked) this is a bipartite matching.
    """
    shapes = Counter(map(_shape, expected))
    if shapes != Counter(map(_shape, got)):
        return False
    return all(
        _perfect_matching(
            [row for row in expected if _shape(row) == shape],
            [row for row in got if _shape(row) == shape],
        )
        for shape in shapes
    )


def _perfect_matching(expected: Sequence[Row], got: Sequence[Row]) -> bool:
    """Pairs in sorted order, which nearly always do; else Kuhn's augmenting paths."""
    left, right = sorted(expected, key=_numbers), sorted(got, key=_numbers)
    if all(same_row(a, b) for a, b in zip(left, right, strict=True)):
        return True
    candidates = [[j for j, b in enumerate(right) if same_row(a, b)] for a in left]
    owner: dict[int, int] = {}
    return all(_augment(start, candidates, owner) for start in range(len(left)))


def _augment(start: int, candidates: list[list[int]], owner: dict[int, int]) -> bool:
    """Give row `start` a partner, by giving others another one if need be; whether it worked."""
    came_from: dict[int, int] = {}  # right -> the left that reached it
    frontier = [start]
    while frontier:
        row = frontier.pop()
        for j in candidates[row]:
            if j in came_from:
                continue
            came_from[j] = row
            if j not in owner:
                _flip(j, came_from, owner, start)
                return True
            frontier.append(owner[j])
    return False


def _flip(free: int, came_from: dict[int, int], owner: dict[int, int], start: int) -> None:
    held = {left: right for right, left in owner.items()}
    j = free
    while True:
        row = came_from[j]
        previous = held.get(row)
        owner[j] = row
        if row == start:
            return
        assert previous is not None
        j = previous


def _shape(row: Row) -> tuple[Any, ...]:
    return tuple("#" if _is_number(cell) else ("=", repr(cell)) for cell in row)


def _numbers(row: Row) -> tuple[float, ...]:
    return tuple(float(cell) for cell in row if _is_number(cell))


def _is_number(cell: Any) -> bool:
    return type(cell) in (int, float)
