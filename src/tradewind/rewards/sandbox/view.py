"""What a child in a box gets to see, whatever builds the walls: bubblewrap, gVisor or Landlock."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tradewind.rewards.sandbox import inside

INSIDE = Path(inside.__file__).parent
SCRATCH = "/scratch"
"""Where a child in a box may write; also its working folder."""
SCRATCHES = ("/dev/shm", "/tmp", SCRATCH)
"""Empty at first, small, and forgotten."""
_OLD_NAMES = ("bin", "sbin", "lib", "lib32", "lib64")


@dataclass(frozen=True)
class View:
    """Read-only, in the order in which it is laid over each other."""

    links: dict[str, str]
    """Old names of parts of /usr, as this machine has them."""
    system: tuple[Path, ...]
    """/usr, Python's own folder, our scripts and what was asked for."""
    hidden: tuple[Path, ...]
    """Folders of packages in there, replaced by empty ones: tasks with their answers may be
    installed."""
    shown: tuple[Path, ...]
    """What lies in a hidden folder and is asked for all the same."""

    @property
    def readable(self) -> list[str]:
        """Every path by its own name, hidden folders not being told apart."""
        return [*self.links, *map(str, self.system), *map(str, self.shown)]


def view(script: Path, packages: Sequence[Path], others: Sequence[Path]) -> View:
    """What `script` gets to see: the system, `packages` and `others`."""
    own = [INSIDE] if script.parent == INSIDE else [INSIDE, script]
    asked = [*packages, *others, *own]
    named, folders = _old_names()
    hidden = tuple(folder for folder in package_folders() if folder not in packages)
    there = [p for p in (Path(sys.base_prefix), *asked) if p.exists()]
    outside = [p for p in there if not p.is_relative_to("/usr")]
    return View(
        links=named,
        system=(Path("/usr"), *folders, *outside),
        hidden=hidden,
        shown=tuple(p for p in asked if p.exists() and _within(p, hidden)),
    )


def _old_names() -> tuple[dict[str, str], list[Path]]:
    """Links as they are, and those of the names that are folders of their own."""
    paths = [Path("/", name) for name in _OLD_NAMES]
    links = {str(path): os.readlink(path) for path in paths if path.is_symlink()}  # noqa: PTH115
    return links, [path for path in paths if path.is_dir() and not path.is_symlink()]


def _within(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


@functools.cache
def package_folders() -> tuple[Path, ...]:
    """Where packages are installed to in what every box can read."""
    roots = dict.fromkeys((Path("/usr"), Path("/usr/local"), Path(sys.base_prefix)))
    names = ("site-packages", "dist-packages")
    found = (f for root in roots for name in names for f in root.glob(f"lib*/python3*/{name}"))
    return tuple(folder for folder in found if folder.is_dir() and not folder.is_symlink())


def installed_packages() -> tuple[Path, ...]:
    """Folders on our own path that packages were installed to; our sources are not among them."""
    folders = (Path(entry) for entry in sys.path if entry)
    return tuple(f for f in folders if f.is_dir() and any(f.glob("*.dist-info")))
