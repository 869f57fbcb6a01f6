"""Regular expressions that people write in options."""

from __future__ import annotations

import re


def checked_pattern(value: str) -> str:
    """For a validator: a regular expression that compiles; raises `ValueError` otherwise."""
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"is no regular expression ({error})") from error
    return value
