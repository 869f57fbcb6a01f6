"""JSON that every reader reads alike."""

from __future__ import annotations

import json
import math
from typing import Any


def read_json(text: str) -> Any:
    """A JSON text's value; raises `ValueError` for what readers of JSON do not agree on.

    That is NaN, which no limit of a schema stops, numbers that only infinity can stand for, and a
    key that stands twice: one reader sees the first value, another the last.
    """
    return json.loads(
        text, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_distinct
    )


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError("a number is too large")
    return number


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return found
