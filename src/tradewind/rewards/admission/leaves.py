"""Artefacts as leaves: where each piece of an answer lies, and which language it is in.

{"files": {"a.py": "def f(): ..."}, "n": 3}   ->   ("files", "a.py") Python, ("n",) a plain value
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

from tradewind.types.record import Json

Path = tuple[str | int, ...]
"""Keys and positions from the artefacts down to a leaf."""

_SQL_START = re.compile(r"\s*(select|with|values)\b", re.IGNORECASE)
_PYTHON_KEYS = ("code", "program", "source", "completion", "python")


class Language(StrEnum):
    """What a leaf is written in; it decides how it can be wrong."""

    SQL = "sql"
    PYTHON = "python"
    VALUE = "value"


def leaves(artefacts: Json) -> list[tuple[Path, Any]]:
    """Every leaf, in the order in which it is written. An empty list or object has none."""
    return list(_walk((), artefacts))


def with_leaf(artefacts: Json, path: Path, value: Any) -> Json:
    """A copy in which one leaf is another."""
    changed = copy.deepcopy(artefacts)
    at: Any = changed
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return changed


def with_all_texts(artefacts: Json, text: str) -> Json:
    """A copy in which every text is `text` and every other leaf is as it was."""
    for path, value in leaves(artefacts):
        if isinstance(value, str):
            artefacts = with_leaf(artefacts, path, text)
    return artefacts


def language_of(path: Path, value: Any) -> Language:
    """By the last key, a file's suffix, or the text itself; a number is always a value."""
    if not isinstance(value, str):
        return Language.VALUE
    key = str(path[-1]).lower() if path else ""
    if key.endswith("sql") or (" " in value.strip() and _SQL_START.match(value)):
        return Language.SQL
    if (key.endswith(".py") or key in _PYTHON_KEYS or "def " in value) and _parses(value):
        return Language.PYTHON
    return Language.VALUE


def _walk(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _walk((*path, key), inner)
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _walk((*path, index), inner)
    else:
        yield path, value


def _parses(source: str) -> bool:
    try:
        ast.parse(source)
    except (SyntaxError, ValueError):
        return False
    return True
