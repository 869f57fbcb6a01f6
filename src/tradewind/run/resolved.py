"""A recipe with every key: as TOML that a run keeps, as a page to read, and what changed since."""

from __future__ import annotations

import json
import textwrap
import tomllib
from collections.abc import Iterator
from typing import Any

from tradewind.run.sentences import toml_path
from tradewind.types.config import Config

COMMENT_COLUMNS = 98
Place = tuple[str | int, ...]


def write_toml(recipe: Config, *, explain: bool = False) -> str:
    """Every key of a recipe, as TOML that `read_recipe` reads back equal.

    With `explain` each key stands below a comment that says what it is, and keys that are not set
    are there as comments.
    """
    lines: list[str] = []
    for section in type(recipe).model_fields:
        value = getattr(recipe, section)
        if isinstance(value, tuple):
            for table in value:
                lines += _table(f"[[{section}]]", section, table, explain)
        else:
            lines += _table(f"[{section}]", section, value, explain)
    return "\n".join(lines)


def differences(before: str, after: str) -> list[str]:
    """Keys of `after` that `before` did not have, or with another value, as `[a] b = 1 (was 2)`."""
    known = dict(_leaves(tomllib.loads(before)))
    changed = []
    for place, value in _leaves(tomllib.loads(after)):
        if place not in known:
            changed.append(f"{toml_path(place)} = {_write(value)} (was not set)")
        elif known[place] != value:
            changed.append(f"{toml_path(place)} = {_write(value)} (was {_write(known[place])})")
    return changed


def _table(header: str, path: str, config: Config, explain: bool) -> list[str]:
    """One table, and below it those that lie in it."""
    lines, inner = [header], []
    said = config.explained() if explain else {}
    plain = config.model_dump(mode="json")
    for key in type(config).model_fields:
        value = getattr(config, key)
        if isinstance(value, Config):
            inner += _table(f"[{path}.{key}]", f"{path}.{key}", value, explain)
            continue
        if explain:
            lines += [f"# {line}" for line in textwrap.wrap(said.get(key, ""), COMMENT_COLUMNS)]
        if plain[key] is not None:
            lines.append(f"{key} = {_write(plain[key])}")
        elif explain:
            lines.append(f"# {key} = (not set)")
    return [*lines, "", *inner]


def _leaves(tree: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    if isinstance(tree, dict) and tree:
        for key, value in tree.items():
            yield from _leaves(value, (*place, key))
    elif isinstance(tree, list) and any(isinstance(value, dict) for value in tree):
        for index, value in enumerate(tree):
            yield from _leaves(value, (*place, index))
    else:
        yield place, tree


def _write(value: Any) -> str:
    """Inline TOML; `repr` of a Python float is TOML, JSON strings are TOML basic strings."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case list():
            return "[" + ", ".join(map(_write, value)) + "]"
        case dict():
            inner = (
                f"{json.dumps(key)} = {_write(v)}" for key, v in value.items() if v is not None
            )
            return "{" + ", ".join(inner) + "}"
    raise AssertionError(value)
