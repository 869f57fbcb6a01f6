"""What a verifier reads of `task.reference`: its own keys, validated, with a sentence if wrong."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from tradewind.rewards.sandbox.inside.plain import decode
from tradewind.rewards.sandbox.same import Tolerance
from tradewind.rewards.signal import VerifierFailed
from tradewind.types.task import Task


class BadReference(VerifierFailed):
    """A task's reference is not what its verifier needs; a sentence for people."""


class Reference(BaseModel):
    """Frozen; other keys of the reference belong to other signals and are not looked at."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())

    @classmethod
    def of(cls, task: Task) -> Self:
        """This verifier's part of the reference; raises `BadReference`."""
        try:
            return cls.model_validate(task.reference)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            what = first["msg"].removeprefix("Value error, ")
            if first["type"] == "missing":
                what, where = f'its reference has no "{where}"', ""
            raise BadReference(f"its reference {where!r}: {what}" if where else what) from error


class NumberReference(Reference):
    """A reference whose numbers may be met approximately. The tolerance is the task's alone."""

    rel_tol: float = 0.0
    """Of the larger of the two numbers."""
    abs_tol: float = 0.0
    """Near zero."""

    @property
    def tolerance(self) -> Tolerance:
        """As values are compared with."""
        return Tolerance(self.rel_tol, self.abs_tol)


def plain_value(data: Any) -> Any:
    """A value as a task file writes it: JSON, and what JSON lacks as `plain.py` does.

    `{"tuple": [1, 2]}` is a tuple and `{"set": [...]}` a set; any other object is a dict with text
    for keys. Raises `ValueError` for a known name with something else inside.
    """
    if isinstance(data, list):
        return [plain_value(item) for item in data]
    if isinstance(data, dict):
        if len(data) == 1 and next(iter(data)) in _NAMED:
            return decode(data)
        return {key: plain_value(value) for key, value in data.items()}
    return data


_NAMED = ("tuple", "set", "frozenset", "bytes", "complex", "int", "dict")
