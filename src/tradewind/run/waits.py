"""How long which process waited for what: sampled from heartbeats, kept in `waits.json`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from tradewind.run.workspace import write_atomic
from tradewind.types import Beat


class Waits:
    """Seconds by process and reason. Numbers in a reason are replaced, so that reasons add up."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seconds = {(process, reason): s for process, reason, s in read_waits(file)}

    def add(self, beats: Iterable[Beat], seconds: float) -> None:
        """Every process that waits now has waited for `seconds` more."""
        for beat in beats:
            if beat.waiting_for:
                key = (beat.process, reason_of(beat))
                self._seconds[key] = self._seconds.get(key, 0.0) + seconds
        longest = sorted(self._seconds.items(), key=lambda item: -item[1])
        rows = [[process, reason, round(s, 1)] for (process, reason), s in longest]
        write_atomic(self._file, json.dumps(rows))


def reason_of(beat: Beat) -> str:
    """`2 more closed groups` with owner grader is `n more closed groups (grader)`."""
    reason = re.sub(r"\d+(\.\d+)?", "n", beat.waiting_for or "")
    return f"{reason} ({beat.owner})" if beat.owner else reason


def read_waits(file: Path) -> list[tuple[str, str, float]]:
    """Process, reason, seconds; the longest first. Empty if nothing was written yet."""
    if not file.exists():
        return []
    return [(p, r, s) for p, r, s in json.loads(file.read_text(encoding="utf-8"))]
