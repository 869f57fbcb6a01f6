"""Are two plain values the same? Type by type, with the task's tolerance and nobody's code."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from tradewind.rewards.sandbox.inside.plain import Other


@dataclass(frozen=True)
class Tolerance:
    """How far two numbers may be apart; the default is not at all."""

    relative: float = 0.0
    absolute: float = 0.0

    @property
    def any(self) -> bool:
        """Whether numbers may differ; then a whole number may stand for a real one too."""
        return self.relative > 0 or self.absolute > 0


EXACT = Tolerance()


def same(expected: Any, got: Any, tolerance: Tolerance = EXACT) -> bool:
    """Whether plain values are equal: a bool is no number, a list no tuple, NaN only NaN.

    Sets and the keys of dicts are compared exactly, whatever the tolerance.
    """
    if tolerance.any and _is_number(expected) and _is_number(got):
        return _close(expected, got, tolerance)
    if type(expected) is not type(got):
        return False
    if type(expected) is float:
        return expected == got or (math.isnan(expected) and math.isnan(got))
    if type(expected) is complex:
        return same(expected.real, got.real) and same(expected.imag, got.imag)
    if type(expected) in (list, tuple):
        return len(expected) == len(got) and all(
            same(a, b, tolerance) for a, b in zip(expected, got, strict=True)
        )
    if type(expected) is dict:
        ours, theirs = _typed_keys(expected), _typed_keys(got)
        return ours.keys() == theirs.keys() and all(
            same(value, theirs[key], tolerance) for key, value in ours.items()
        )
    if type(expected) in (set, frozenset):
        return {typed(item) for item in expected} == {typed(item) for item in got}
    return not isinstance(got, Other) and bool(expected == got)


def typed(value: Any) -> Hashable:
    """A hashable that two plain, hashable values share if and only if they are the same."""
    if isinstance(value, tuple | frozenset):
        members = (typed(item) for item in value)
        return type(value).__name__, type(value)(members)
    return type(value).__name__, "nan" if value != value else value


def _typed_keys(table: dict[Any, Any]) -> dict[Hashable, Any]:
    return {typed(key): value for key, value in table.items()}


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _close(expected: float, got: float, tolerance: Tolerance) -> bool:
    try:
        if math.isnan(expected) or math.isnan(got):
            return math.isnan(expected) and math.isnan(got)
        return math.isclose(expected, got, rel_tol=tolerance.relative, abs_tol=tolerance.absolute)
    except OverflowError:  # a whole number beyond every real one
        return expected == got
