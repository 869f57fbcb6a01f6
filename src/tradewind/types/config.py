"""Configuration of a process: a pydantic model per package, read from a JSON or TOML file."""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import textwrap
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from tradewind.types.errors import UserError


class Config(BaseModel):
    """Frozen, closed to unknown keys; every field has a default and a docstring under it."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())
    called: ClassVar[str] = "the configuration"
    """What people call a file of it."""

    @classmethod
    def explained(cls) -> dict[str, str]:
        """The docstring of each field, on one line. Read from the sources: not for a hot path."""
        said: dict[str, str] = {}
        for part in reversed(cls.__mro__):
            if part is not Config and issubclass(part, Config):
                (found,) = ast.parse(textwrap.dedent(inspect.getsource(part))).body
                assert isinstance(found, ast.ClassDef)
                said |= _docstrings(found.body)
        return said

    @classmethod
    def read(cls, path: Path | None) -> Self:
        """The configuration in a `.toml` or JSON file, or all defaults for None.

        Raises `UserError` with a sentence for every unknown key and wrong value.
        """
        values = {} if path is None else _load(path, cls.called)
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            faults = "; ".join(
                f"{'.'.join(map(str, fault['loc']))} = {fault['input']!r}: {fault['msg']}"
                for fault in error.errors()
            )
            raise UserError(
                f"{cls.called} does not work ({faults})",
                value=str(path),
                fix=f"known keys are {', '.join(cls.model_fields)}",
            ) from error

    @classmethod
    def with_options(cls, path: Path | None, options: Mapping[str, object]) -> Self:
        """What `read` gives, with what the command line says instead; None means it says nothing.

        Raises `UserError` that names the option.
        """
        given = {name: value for name, value in options.items() if value is not None}
        try:
            return cls.model_validate({**cls.read(path).model_dump(), **given})
        except ValidationError as error:
            first = error.errors()[0]
            option = "--" + str(first["loc"][0]).replace("_", "-")
            raise UserError(
                f"{option} does not work ({first['msg']})", value=first["input"], fix="correct it"
            ) from error


def _docstrings(body: list[ast.stmt]) -> dict[str, str]:
    """What stands below each annotated name."""
    return {
        field.target.id: " ".join(below.value.value.split())
        for field, below in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }


def _load(path: Path, called: str) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
        return tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise UserError(
            f"{called} cannot be read ({error.strerror})",
            value=str(path),
            fix="check the path",
        ) from error
    except ValueError as error:
        raise UserError(
            f"{called} is neither JSON nor TOML ({error})",
            value=str(path),
            fix="write a JSON file, or TOML with the suffix .toml",
        ) from error
