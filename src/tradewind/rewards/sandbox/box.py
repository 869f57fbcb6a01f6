"""The walls around a child, as the command that starts it.

    L1   launch.py (limits, Landlock) -> script
    L2   bwrap (namespaces, read-only system, scratch) -> launch.py (other user, ...) -> script
    L3   sh (joins a control group) -> bwrap (and a filter of system calls) -> ... as L2
    L4   runsc (a kernel of its own, with all that bwrap gives) -> launch.py -> script

As root, bwrap runs as root and `launch.py` becomes an unused host user: limits on processes count
for that user, and no user namespace is needed. Otherwise bwrap makes a user namespace.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tradewind.rewards.sandbox import bubblewrap
from tradewind.rewards.sandbox.cgroup import Group, make_group
from tradewind.rewards.sandbox.gvisor import OWN_MEMORY_MB, Bundle
from tradewind.rewards.sandbox.level import Level
from tradewind.rewards.sandbox.limits import Limits
from tradewind.rewards.sandbox.seccomp import filter_program
from tradewind.rewards.sandbox.uid import unused_uid
from tradewind.rewards.sandbox.view import INSIDE, SCRATCHES, View, view

LAUNCH = INSIDE / "launch.py"
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}
"""All that a child sees: no secret of ours, and the same order of sets in every run."""

PYTHON = str(getattr(sys, "_base_executable", None) or sys.executable)
"""The interpreter itself, without the virtual environment around it."""
_FLAGS = ("-P", "-s", "-S", "-B")
_JOIN = 'echo 0 > "$1/cgroup.procs" && shift && exec "$@"'


@dataclass(frozen=True)
class Command:
    """What to start."""

    argv: list[str]
    program: bytes | None = None
    """The filter's program; the number of a descriptor to read it from stands for `SECCOMP`."""
    boxed: bool = False
    """Whether what is started starts the child in a process of its own."""


@dataclass
class Box:
    """Walls of one level for one child at a time; `close` after the last one."""

    level: Level
    limits: Limits = field(default_factory=Limits)
    readable: Sequence[Path] = ()
    """Folders and files that the child may read besides the system and Python's own."""
    packages: Sequence[Path] = ()
    """Folders from which the child may import, besides the standard library."""
    confined: bool = True
    """Whether Landlock closes what is not shown; not for code of the user's own at L1."""

    def __post_init__(self) -> None:
        self._uid = unused_uid() if self.level >= Level.L2 else None
        self._bundle = Bundle() if self.level >= Level.L4 else None
        self.group = self._group() if self.level is Level.L3 else None

    def command(self, script: Path, *arguments: str) -> Command:
        """How to start one of our scripts inside."""
        sees = view(script, self.packages, self.readable)
        python = [PYTHON, *_FLAGS, str(LAUNCH), self._told(sees)]
        python += [os.pathsep.join(map(str, self.packages)), str(script), *arguments]
        if self.level <= Level.L1:
            return Command(python)
        scratch = self.limits.scratch_mb << 20
        if self._bundle is not None:
            argv = self._bundle.walls(sees, ENVIRONMENT, scratch, self._uid, python)
            return Command(argv, boxed=True)
        program = filter_program() if self.level >= Level.L3 else None
        filtered = program is not None
        as_root = self._uid is not None
        argv = bubblewrap.walls(sees, ENVIRONMENT, scratch, as_root=as_root, filtered=filtered)
        return Command([*self._joined(), *argv, *python], program, boxed=True)

    def close(self) -> None:
        """Give back what it holds of the machine."""
        if self.group is not None:
            self.group.close()
            self.group = None
        if self._bundle is not None:
            self._bundle.close()

    @property
    def memory(self) -> int | None:
        """Bytes that all processes of a child may hold together and the parent must look after."""
        if self.level <= Level.L1 or (self.group is not None and self.group.counts_memory):
            return None
        return (self.limits.memory_mb + (OWN_MEMORY_MB if self._bundle else 0)) << 20

    @property
    def means(self) -> str:
        """What counts processes, in words, and memory if the kernel does that, too."""
        if self._bundle is not None:
            return "gVisor"
        if self.group is not None:
            memory = " and memory" if self.group.counts_memory else ""
            return f"a control group counts processes{memory}"
        if self._uid is not None:
            return "a user id of its own counts processes"
        return "a user namespace counts processes"

    def _told(self, sees: View) -> str:
        """What `launch.py` is to do; under gVisor its user is set from the start."""
        alone = self.level <= Level.L1
        devices = ["/dev/null", "/dev/urandom"] if alone else ["/proc", "/dev"]
        writable = ["/dev/null"] if alone else ["/dev", *SCRATCHES]
        if alone and self.limits.file_mb:
            writable.append("/tmp")
        return self.limits.as_json(
            None if self._bundle else self._uid,
            count_processes=not alone,
            paths=([*sees.readable, *devices], writable) if self.confined else None,
        )

    def _group(self) -> Group | None:
        most = self.limits.processes + bubblewrap.OWN_PROCESSES
        return make_group(most, self.limits.memory_mb << 20)

    def _joined(self) -> list[str]:
        """The words that put what follows into the control group, if there is one."""
        if self.group is None:
            return []
        if not self.group.folder.is_dir():  # somebody tidied up
            self.group = self._group()
        return ["/bin/sh", "-c", _JOIN, "sh", str(self.group.folder)] if self.group else []
