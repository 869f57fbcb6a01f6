"""How many tokens an engine samples a second."""

from __future__ import annotations

import time
from collections import deque

WINDOW_S = 10.0
"""Over which they are counted, in seconds."""


class Rate:
    """One thread adds, any may ask."""

    def __init__(self) -> None:
        self._sampled: deque[tuple[float, int]] = deque()

    def add(self, tokens: int) -> None:
        """So many were sampled just now."""
        now = time.monotonic()
        self._sampled.append((now, tokens))
        while self._sampled[0][0] <= now - WINDOW_S:
            self._sampled.popleft()

    def per_s(self) -> float:
        """Tokens per second over the window that ends now."""
        since = time.monotonic() - WINDOW_S
        return sum(tokens for at, tokens in tuple(self._sampled) if at > since) / WINDOW_S
