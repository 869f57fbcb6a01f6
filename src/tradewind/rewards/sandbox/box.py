"""The walls around a child, as the command that starts it.

    L1   launch.py (limits) -> script
    L2   bwrap (namespaces, read-only system, scratch) -> launch.py (other user, limits) -> script
    L3   sh (joins a control group) -> bwrap (and a filter of system calls) -> ... as L2

As root, bwrap runs as root and `launch.py` becomes an unused host user: limits on processes count
for that user, and no user namespace is needed. Otherwise bwrap makes a user namespace.
"""

from __future__ import annotations

import functools
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tradewind.rewards.sandbox import inside
from tradewind.rewards.sandbox.cgroup import ProcessCount, count_processes
from tradewind.rewards.sandbox.level import Level
from tradewind.rewards.sandbox.limits import Limits
from tradewind.rewards.sandbox.seccomp import filter_program
from tradewind.rewards.sandbox.uid import unused_uid

INSIDE = Path(inside.__file__).parent
LAUNCH = INSIDE / "launch.py"
SCRATCH = "/scratch"
"""Where a child in a box may write; also its working folder."""

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}
"""All that a child sees: no secret of ours, and the same order of sets in every run."""

PYTHON = str(getattr(sys, "_base_executable", None) or sys.executable)
"""The interpreter itself, without the virtual environment around it."""
_FLAGS = ("-P", "-s", "-S", "-B")
SECCOMP = "{0}"
"""In a command, the descriptor of the filter."""
_JOIN = 'echo 0 > "$1/cgroup.procs" && shift && exec "$@"'
_UNSHARED = ("pid", "net", "ipc", "uts", "cgroup")
_OWN_PROCESSES = 4
"""bwrap's own, which a control group counts too."""


@dataclass(frozen=True)
class Command:
    """What to start."""

    argv: list[str]
    program: bytes | None = None
    """The filter's program; the number of a descriptor to read it from stands for `SECCOMP`."""
    boxed: bool = False
    """Whether bwrap is what is started."""


@dataclass
class Box:
    """Walls of one level for one child at a time; `close` after the last one."""

    level: Level
    limits: Limits = field(default_factory=Limits)
    readable: Sequence[Path] = ()
    """Folders and files that the child may read besides the system and Python's own."""
    packages: Sequence[Path] = ()
    """Folders from which the child may import, besides the standard library."""

    def __post_init__(self) -> None:
        self._uid = unused_uid() if self.level >= Level.L2 else None
        self._count: ProcessCount | None = None
        if self.level >= Level.L3:
            self._count = count_processes(self.limits.processes + _OWN_PROCESSES)

    def command(self, script: Path, *arguments: str) -> Command:
        """How to start one of our scripts inside."""
        told = self.limits.as_json(self._uid, count_processes=self.level >= Level.L2)
        packages = os.pathsep.join(map(str, self.packages))
        python = [PYTHON, *_FLAGS, str(LAUNCH), told, packages, str(script), *arguments]
        if self.level <= Level.L1:
            return Command(python)
        program = filter_program() if self.level >= Level.L3 else None
        walls = self._walls(script)
        if program is not None:
            walls += ["--seccomp", SECCOMP]
        argv = [*walls, "--", *python]
        if self._count is not None and not self._count.folder.is_dir():  # somebody tidied up
            self._count = count_processes(self.limits.processes + _OWN_PROCESSES)
        if self._count is not None:
            argv = ["/bin/sh", "-c", _JOIN, "sh", str(self._count.folder), *argv]
        return Command(argv, program, boxed=True)

    def close(self) -> None:
        """Give the control group back."""
        if self._count is not None:
            self._count.close()
            self._count = None

    @property
    def means(self) -> str:
        """What counts processes, in words."""
        if self._count is not None:
            return "a control group counts processes"
        if self._uid is not None:
            return "a user id of its own counts processes"
        return "a user namespace counts processes"

    def _walls(self, script: Path) -> list[str]:
        size = str(self.limits.scratch_mb << 20)
        return [
            shutil.which("bwrap") or "bwrap",
            *(f"--unshare-{name}" for name in _UNSHARED),
            *self._user(),
            "--die-with-parent",
            "--new-session",
            "--clearenv",
            *(word for item in ENVIRONMENT.items() for word in ("--setenv", *item)),
            *("--proc", "/proc", "--dev", "/dev"),
            *_scratch("/dev/shm", size),
            *_scratch("/tmp", size),
            *_scratch(SCRATCH, size),
            *_system(),
            *(word for path in self._paths(script) for word in _bind(path)),
            *(word for path in self._hidden() for word in ("--tmpfs", str(path))),
            *(word for path in self._shown(script) for word in _bind(path)),
            *(word for path in self._hidden() for word in ("--remount-ro", str(path))),
            *("--remount-ro", "/dev", "--remount-ro", "/"),
            *("--chdir", SCRATCH),
        ]

    def _user(self) -> list[str]:
        if self._uid is None:
            return ["--unshare-user", "--disable-userns"]
        return ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]

    def _paths(self, script: Path) -> list[Path]:
        """What is bound at its own place: Python, packages, our scripts."""
        paths = [Path(sys.base_prefix), *self._asked_for(script)]
        return [path for path in paths if path.exists() and not path.is_relative_to("/usr")]

    def _asked_for(self, script: Path) -> list[Path]:
        own = [INSIDE] if script.parent == INSIDE else [INSIDE, script]
        return [*self.packages, *self.readable, *own]

    def _hidden(self) -> list[Path]:
        """Folders of packages that would come along with the system and Python: tasks with their
        answers may be installed there."""
        return [path for path in _package_folders() if path not in self.packages]

    def _shown(self, script: Path) -> list[Path]:
        """What lies in such a folder and is asked for all the same."""
        hidden = self._hidden()
        return [
            path
            for path in self._asked_for(script)
            if path.exists() and any(path.is_relative_to(folder) for folder in hidden)
        ]


@functools.cache
def _package_folders() -> tuple[Path, ...]:
    """Where packages are installed to in what every box can read."""
    roots = dict.fromkeys((Path("/usr"), Path("/usr/local"), Path(sys.base_prefix)))
    names = ("site-packages", "dist-packages")
    found = (f for root in roots for name in names for f in root.glob(f"lib*/python3*/{name}"))
    return tuple(folder for folder in found if folder.is_dir() and not folder.is_symlink())


def installed_packages() -> tuple[Path, ...]:
    """Folders on our own path that packages were installed to; our sources are not among them."""
    folders = (Path(entry) for entry in sys.path if entry)
    return tuple(f for f in folders if f.is_dir() and any(f.glob("*.dist-info")))


def _scratch(place: str, size: str) -> list[str]:
    return ["--perms", "1777", "--size", size, "--tmpfs", place]


def _bind(path: Path) -> list[str]:
    """At its own place; folders above it, which bwrap would close to others, are made open."""
    above = [word for folder in reversed(path.parents[:-1]) for word in ("--dir", str(folder))]
    return [*above, "--ro-bind", str(path), str(path)]


def _system() -> list[str]:
    """/usr, and the old names of its parts as this machine has them."""
    words = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        path = Path("/", name)
        if path.is_symlink():
            words += ["--symlink", os.readlink(path), str(path)]  # noqa: PTH115
        elif path.is_dir():
            words += ["--ro-bind", str(path), str(path)]
    return words
