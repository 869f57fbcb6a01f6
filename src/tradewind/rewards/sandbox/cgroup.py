"""A control group that counts the processes of a box, where the system lets us make one.

Only below our own group, and only if that is the root of the hierarchy or delegated to us: a group
that somebody else manages is left alone.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from dataclasses import dataclass
from pathlib import Path

_PREFIX = "tradewind-"
_numbers = itertools.count()


@dataclass(frozen=True)
class ProcessCount:
    """At most so many processes at a time in one group, whatever their user."""

    folder: Path

    def close(self) -> None:
        """Remove the group; its processes are gone by then."""
        with contextlib.suppress(OSError):
            self.folder.rmdir()


def count_processes(most: int) -> ProcessCount | None:
    """A new group that holds at most `most` processes and threads; None where we may not."""
    for parent in _own_groups():
        _remove_stale(parent)
        folder = parent / f"{_PREFIX}{os.getpid()}-{next(_numbers)}"
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            (folder / "pids.max").write_text(str(most))
        except OSError:
            ProcessCount(folder).close()
            continue
        return ProcessCount(folder)
    return None


def _own_groups() -> list[Path]:
    """Folders of our own group that have the `pids` controller and are ours to divide."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        mounts = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return []
    own = {fields[1]: fields[2] for fields in (line.split(":", 2) for line in lines)}
    found = []
    for mount in mounts:
        _, place, kind, options, *_ = mount.split(" ")
        if kind == "cgroup" and "pids" in options.split(",") and own.get("pids") == "/":
            found.append(Path(place))
        if kind == "cgroup2" and "" in own:
            folder = Path(place, own[""].lstrip("/"))
            if own[""] == "/" or _is_delegated(folder):
                found.append(folder)
    return found


def _is_delegated(folder: Path) -> bool:
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(folder, name) == b"1":
                return True
    return False


def _remove_stale(parent: Path) -> None:
    """Groups of graders that were killed."""
    for folder in parent.glob(f"{_PREFIX}*-*"):
        pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if not Path("/proc", pid).exists():
            ProcessCount(folder).close()
