"""How much memory a process and all that it started hold together.

An address space is limited for each process, and a program may have several. Where no control
group of ours counts memory, the parent looks itself while it waits. Linux only.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_HELD_KIB = re.compile(r"^(?:RssAnon|RssShmem|VmSwap):\s+(\d+) kB$", re.MULTILINE)


def footprint(pid: int) -> int:
    """Bytes that `pid` and its descendants hold and share with nobody's files; 0 if it is gone.

    Memory that a fork shares with its parent counts twice: the sum is at most too high.
    """
    return sum(map(_private, (pid, *descendants(pid))))


def descendants(pid: int) -> list[int]:
    """All that `pid` has started, and what these have, parents first."""
    found = children_of(pid)
    for process in found:  # which grows meanwhile
        found += children_of(process)
    return found


def _private(pid: int) -> int:
    """Anonymous, shared anonymous (which `statm` calls shared) and swapped out."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:  # it ended meanwhile
        return 0
    return 1024 * sum(map(int, _HELD_KIB.findall(status)))


def children_of(pid: int) -> list[int]:
    """The processes that `pid` has started, by any of its threads; none if it is gone."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208  it is looked at often
            text = Path(f"/proc/{pid}/task/{thread}/children").read_text()
            found += map(int, text.split())
    except OSError:
        return found
    return found
