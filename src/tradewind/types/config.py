"""Configuration of a process: a pydantic model per package, read from a JSON or TOML file."""

from __future__ import annotations

import json
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
