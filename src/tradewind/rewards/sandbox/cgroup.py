"""A control group for a box: counts its processes and, with cgroup v2, all their memory.

Only where the system lets us make one: below our own group, and only if that is the root of the
hierarchy or delegated to us. A group that somebody else manages is left alone.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from dataclasses import dataclass
from pathlib import Path

from tradewind.rewards.sandbox.orphans import left_behind

_PREFIX = "tradewind-"
_numbers = itertools.count()


@dataclass(frozen=True)
class Group:
    """At most so many processes at a time, whatever their user; and so much memory, if it says."""

    folder: Path
    counts_memory: bool = False

    @property
    def ended(self) -> int:
        """Processes that the kernel has ended here for the memory that all of them held."""
        with contextlib.suppress(OSError):
            lines = (self.folder / "memory.events").read_text().splitlines()
            return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
        return 0

    def close(self) -> None:
        """Remove the group; its processes are gone by then."""
        with contextlib.suppress(OSError):
            self.folder.rmdir()


def make_group(processes: int, memory: int) -> Group | None:
    """A new group for so many processes and threads, and bytes; None where we may not."""
    for parent in _own_groups():
        for stale in left_behind(parent, _PREFIX):
            Group(stale).close()
        folder = parent / f"{_PREFIX}{os.getpid()}-{next(_numbers)}"
        try:
            folder.mkdir()
        except OSError:
            continue
        if _set(folder, "pids.max", processes):
            counts_memory = _set(folder, "memory.max", memory)
            if counts_memory:
                _set(folder, "memory.swap.max", 0)
                _set(folder, "memory.oom.group", 1)
            return Group(folder, counts_memory)
        Group(folder).close()
    return None


def _set(folder: Path, name: str, value: int) -> bool:
    try:
        (folder / name).write_text(str(value))
    except OSError:
        return False
    return True


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
                _hand_down(folder)
                found.append(folder)
    return found


def _hand_down(folder: Path) -> None:
    """Let groups below count processes and memory; refused while processes live in the folder."""
    for controller in ("pids", "memory"):
        with contextlib.suppress(OSError):
            (folder / "cgroup.subtree_control").write_text(f"+{controller}")


def _is_delegated(folder: Path) -> bool:
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(folder, name) == b"1":
                return True
    return False
