"""`<workspace>/metrics/<stage>.jsonl`: one JSON object per step, for the live view and the report.

The ledger is the truth; this file is written after a commit and made whole again at each start.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Line = dict[str, Any]


class MetricsFile:
    """Appends lines; `restart` replaces all of them in one rename."""

    def __init__(self, workspace: Path, stage: str) -> None:
        self.file = workspace / "metrics" / f"{stage}.jsonl"
        self.file.parent.mkdir(parents=True, exist_ok=True)

    def read(self) -> list[Line]:
        """All whole lines; a line cut off by a crash is left out."""
        if not self.file.exists():
            return []
        whole = self.file.read_text(encoding="utf-8").split("\n")[:-1]
        return [json.loads(line) for line in whole]

    def restart(self, lines: Iterable[Line]) -> None:
        """The file holds exactly these lines from now on."""
        part = self.file.with_name(f".{self.file.name}.{os.getpid()}")
        part.write_text("".join(_text(line) for line in lines), encoding="utf-8")
        part.replace(self.file)

    def append(self, line: Line) -> None:
        """Add one line; NaN and infinity are refused."""
        with self.file.open("a", encoding="utf-8") as out:
            out.write(_text(line))


def _text(line: Line) -> str:
    return json.dumps(line, allow_nan=False) + "\n"
