"""The record of a benchmark: figures, where and when they were measured, and what is behind them.

    {"figures": {name: number}, "machine": str, "versions": {package: version},
     "command": str, "date": "YYYY-MM-DD", "details": {...}}

Ratios are named `<ours>_over_<peer>` and larger is better, unless the name says otherwise.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from common.machine import machine


def write_figures(
    path: Path | None,
    figures: dict[str, float],
    *,
    versions: dict[str, str],
    details: dict[str, Any],
) -> None:
    """Print the figures; write the whole record to `path` if there is one.

    A figure that is not a finite number is refused: what was not measured has no figure.
    """
    for name, value in figures.items():
        assert math.isfinite(value), f"{name} is {value}"
        print(f"{name:42} {value:12.5g}")
    if path is None:
        return
    record = {
        "figures": figures,
        "machine": machine(),
        "versions": versions,
        "command": shlex.join(["python", *sys.argv]),
        "date": datetime.now(UTC).date().isoformat(),
        "details": details,
    }
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    os.replace(partial, path)  # noqa: PTH105  the atomic rename is the point
