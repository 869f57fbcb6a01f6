"""How well code that nobody has read is kept apart."""

from __future__ import annotations

from enum import IntEnum


class Level(IntEnum):
    """Each one stops what those below it stop, and more."""

    L0 = 0
    """The grader's own process: stops nothing, so nothing is ever run there."""
    L1 = 1
    """A process of its own with limits and an empty environment: stops accidents."""
    L2 = 2
    """Another user, no network, a read-only system, a fresh scratch folder, no other process in
    sight: stops reading secrets, tests and answers, fetching, and leaving anything behind."""
    L3 = 3
    """And system calls filtered, processes counted: stops fork bombs and most roads into the
    kernel."""
    L4 = 4
    """And a kernel of its own (gVisor, a micro VM, another machine): stops bugs of the kernel."""
