"""When to ask again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

LONGEST_S = 60.0
"""No answer makes a client wait longer, in seconds."""


def pauses(first_s: float, longest_s: float) -> Iterator[float]:
    """Seconds between two attempts, without end: twice as long each time, up to the longest."""
    pause = first_s
    while True:
        yield pause
        pause = min(2 * pause, longest_s)


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds that an answer asks to wait; 0 if it does not say."""
    try:
        return max(0.0, min(float(headers.get("retry-after", 0)), LONGEST_S))
    except ValueError:
        return 0.0
