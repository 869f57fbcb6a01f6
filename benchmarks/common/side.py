"""A side of a comparison: one process of its own that reports by JSON lines.

benchmark ── argv ──► side
          ◄── {"event": ..., ...} on stdout, one a line; anything else there is noise
          ◄── stderr, shown only if the side fails
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Event = dict[str, Any]
BENCHMARKS = Path(__file__).resolve().parent.parent


class SideFailedError(RuntimeError):
    """A side ended with an error or ran past its limit; says what it wrote last."""


def report(event: str, **fields: Any) -> None:
    """In a side: tell the benchmark something."""
    print(json.dumps({"event": event, **fields}), flush=True)


def run_side(
    name: str,
    argv: Sequence[str],
    *,
    limit_s: float,
    threads: int,
    prefix: str = "",
    shared: bool = False,
) -> list[Event]:
    """Run a side to its end and return its events.

    `prefix` is put before the command (`taskset -c 0-1`, a lock). `shared`: the side has processes
    that compute at the same time, and threads that wait sleep at once. Raises
    `SideFailedError`.
    """
    command = [*prefix.split(), *argv]
    with tempfile.TemporaryFile("w+") as errors:
        side = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=_environment(threads, shared),
        )
        timer = threading.Timer(limit_s, side.kill)
        timer.start()
        try:
            events = _read(name, side)
            code = side.wait()
        finally:
            timer.cancel()
            side.kill()
        if code != 0:
            errors.seek(0)
            tail = "".join(errors.readlines()[-12:])
            raise SideFailedError(f"{name} ended with {code} (limit {limit_s:.0f} s):\n{tail}")
    return events


def _read(name: str, side: subprocess.Popen[str]) -> list[Event]:
    events: list[Event] = []
    assert side.stdout is not None
    for line in side.stdout:
        if not line.startswith('{"event"'):
            continue
        event: Event = json.loads(line)
        events.append(event)
        shown = " ".join(f"{k}={_short(v)}" for k, v in event.items() if k != "event")
        print(f"  {name}: {event['event']} {shown}", file=sys.stderr, flush=True)
    return events


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)[:60]


def _environment(threads: int, shared: bool) -> dict[str, str]:
    """The same threads and memory settings for every side, our benchmark code importable, and
    nothing from the hub.

    glibc keeps freed tensors and asks for huge pages, as our launcher has it: it is worth a tenth
    of a step to anybody who allocates activations anew, and a twentieth to who reads weights.
    """
    # imported here: a peer's environment has no tradewind
    from tradewind.run.topology import HUGE_PAGES, TRAINER_MEMORY

    root = BENCHMARKS.parent
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (BENCHMARKS, root / "src", root / "examples"))),
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        **TRAINER_MEMORY,
        **HUGE_PAGES,
        **({"OMP_WAIT_POLICY": "PASSIVE"} if shared else {}),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }
