"""What is wrong in a recipe, as sentences: TOML path, value, nearest known key."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tradewind.types import UserError

Path = Sequence[str | int]

EXAMPLES = {
    "[model]": ", for example with path = 'folder/of/a/checkpoint'",
    "[env]": ", for example with entry = 'my_env.py'",
}
"""What to write where a table without a default is missing."""


def toml_path(loc: Path) -> str:
    """`("trainer", "steps")` is `[trainer] steps`, `("pools", 0, "name")` `[[pools]] #1 name`."""
    match list(loc):
        case []:
            return "the recipe"
        case [str(key)]:
            return f"[{key}]"
        case [str(key), int(index), *rest]:
            return " ".join([f"[[{key}]] #{index + 1}", *map(str, rest)])
        case [key, *rest]:
            return f"[{key}] " + ".".join(map(str, rest))
    raise AssertionError(loc)


def known_keys(model: type[BaseModel], loc: Path) -> list[str]:
    """The keys that the model at `loc` knows; empty where there is no model."""
    at: type[BaseModel] | None = model
    for part in loc:
        if isinstance(part, int):
            continue
        field = at.model_fields.get(part) if at else None
        at = next(_models(field.annotation), None) if field else None
    return list(at.model_fields) if at else []


def recipe_error(error: ValidationError, model: type[BaseModel], source: str) -> UserError:
    """All faults that pydantic found, as one UserError with a sentence each."""
    return UserError(
        f"{source} cannot work: "
        + " ".join(_sentence(e, model) for e in error.errors()).rstrip("."),
        fix="correct it there; `tradewind run RECIPE --dry-run` says of each key what it is",
    )


def _sentence(error: ErrorDetails, model: type[BaseModel]) -> str:
    loc = error["loc"]
    where, value = toml_path(loc), error["input"]
    if error["type"] == "extra_forbidden":
        keys = known_keys(model, loc[:-1])
        near = difflib.get_close_matches(str(loc[-1]), keys, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(keys)}."
        shown = "" if isinstance(value, dict | list) else f" (value {value!r})"
        return f"{where}{shown} is not a known key; {hint}"
    if error["type"] == "missing":
        example = EXAMPLES.get(where, "")
        return f"{where} is missing{example}."
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "path_type":
        message = "it must be a path, as a text"
    shown = "" if isinstance(value, dict | list) else f" = {value!r}"
    return f"{where}{shown} is not valid: {message[:1].lower()}{message[1:].rstrip('.')}."


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)
