"""Mutants: the oracle's artefacts with one small error each. A good verifier rejects them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from tradewind.rewards.admission.leaves import Language, language_of, leaves, with_leaf
from tradewind.rewards.admission.mutants_python import python_mutants
from tradewind.rewards.admission.mutants_sql import sql_mutants
from tradewind.types.record import Json

_NUMBER = re.compile(r"\s*[-+]?\d+(\.\d+)?\s*")


@dataclass(frozen=True)
class Mutant:
    """One wrong answer."""

    done: str
    """What was changed, in words."""
    artefacts: Json


def mutants(oracle: Json, most: int) -> list[Mutant]:
    """Up to `most` different mutants, taken from all leaves and over all operators in turn."""
    lanes = [list(_of_leaf(oracle, path, value)) for path, value in leaves(oracle)]
    found: list[Mutant] = []
    for row in zip_longest(*map(_spread, lanes)):
        for mutant in row:
            known = (oracle, *(other.artefacts for other in found))
            if mutant is not None and mutant.artefacts not in known:
                found.append(mutant)
    return found[:most]


def value_mutants(value: Any) -> Iterator[tuple[str, Any]]:
    """Wrong values near a right one: of the same type, so that a type check is not enough."""
    match value:
        case bool():
            yield f"became {not value}", not value
        case int() | float():
            yield f"became {value + 1}", value + 1
            if value:
                yield f"became {-value}", -value
                yield f"became {value * 10}", value * 10
        case str() if _NUMBER.fullmatch(value):
            number = float(value) if "." in value else int(value)
            for done, other in value_mutants(number):
                yield done, str(other)
        case str() if value.strip():
            yield "its last character was left out", value.strip()[:-1]
            words = value.split()
            if words[1:]:
                yield "its last word was left out", " ".join(words[:-1])
                if words != words[::-1]:
                    yield "its words were reversed", " ".join(words[::-1])
            yield "it was denied", f"not {value}"
            yield "it was hedged", f"{value} or {value.strip()[:-1]}"


def _of_leaf(oracle: Json, path: tuple[str | int, ...], value: Any) -> Iterator[Mutant]:
    match language_of(path, value):
        case Language.SQL:
            changes: Iterator[tuple[str, Any]] = sql_mutants(value)
        case Language.PYTHON:
            changes = python_mutants(value)
        case Language.VALUE:
            changes = value_mutants(value)
    where = ".".join(map(str, path))
    for done, other in changes:
        yield Mutant(f"{where}: {done}", with_leaf(oracle, path, other))


def _spread(lane: list[Mutant]) -> list[Mutant]:
    """Evenly over the lane, so that a cut of any length still holds every operator."""
    step = max(1, round(len(lane) ** 0.5))
    return [mutant for start in range(step) for mutant in lane[start::step]]
