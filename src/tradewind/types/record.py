"""The base of every record that crosses a process: frozen, closed, plain data."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

Json = dict[str, Any]
"""A JSON object whose inner shape belongs to the customer, not to us."""


class Record(BaseModel):
    """Frozen pydantic model that refuses unknown keys; `model_dump_json` is its wire form."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())
