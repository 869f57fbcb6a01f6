"""What every signal has in common that only counts."""

from __future__ import annotations

import re

from tradewind.rewards.signal import Kind
from tradewind.types.task import Task


class Counted:
    """Looks at turns, can score every task, holds nothing open."""

    version = "1"
    kind = Kind.BEHAVIOUR
    needs_turns = True

    def check(self, task: Task) -> str | None:
        """Every task can be scored."""
        return None

    def close(self) -> None:
        """Nothing to end."""


def checked_pattern(value: str) -> str:
    """For a validator: a regular expression that compiles; raises `ValueError` otherwise."""
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"is no regular expression ({error})") from error
    return value
