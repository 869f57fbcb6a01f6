"""Text that every store can hold, made of text that an agent chose."""

from __future__ import annotations

from typing import Any


def storable(data: Any) -> Any:
    """Plain data without half characters and NUL, which databases refuse; shown as escapes instead.

    Lists and dicts are rebuilt, other values stay as they are.
    """
    if isinstance(data, str):
        return data.encode(errors="backslashreplace").decode().replace("\0", "\\0")
    if isinstance(data, dict):
        return {storable(key): storable(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [storable(item) for item in data]
    return data
