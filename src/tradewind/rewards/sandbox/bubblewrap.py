"""Namespaces by bubblewrap: no network, no other process, a read-only system, a small scratch."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from tradewind.rewards.sandbox.view import SCRATCH, SCRATCHES, View

NAME, INSTALL = "bubblewrap", "apt-get install bubblewrap"
SECCOMP = "{0}"
"""In a command, the descriptor of the filter."""
_UNSHARED = ("pid", "net", "ipc", "uts", "cgroup")
OWN_PROCESSES = 4
"""bwrap's own, which a control group counts too."""


def installed() -> str | None:
    """Where the program is."""
    return shutil.which("bwrap")


def walls(
    sees: View,
    environment: Mapping[str, str],
    scratch_bytes: int,
    *,
    as_root: bool,
    filtered: bool,
) -> list[str]:
    """The command to put in front of another one; `as_root` if that one will change its user."""
    user = ["--unshare-user", "--disable-userns"]
    if as_root:
        user = ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    scratch = ("--perms", "1777", "--size", str(scratch_bytes), "--tmpfs")
    return [
        installed() or "bwrap",
        *(f"--unshare-{name}" for name in _UNSHARED),
        *user,
        *("--die-with-parent", "--new-session", "--clearenv"),
        *(word for item in environment.items() for word in ("--setenv", *item)),
        *("--proc", "/proc", "--dev", "/dev"),
        *(word for place in SCRATCHES for word in (*scratch, place)),
        *(word for path, to in sees.links.items() for word in ("--symlink", to, path)),
        *(word for path in sees.system for word in _bind(path)),
        *(word for path in sees.hidden for word in ("--tmpfs", str(path))),
        *(word for path in sees.shown for word in _bind(path)),
        *(word for path in sees.hidden for word in ("--remount-ro", str(path))),
        *("--remount-ro", "/dev", "--remount-ro", "/"),
        *("--chdir", SCRATCH),
        *(("--seccomp", SECCOMP) if filtered else ()),
        "--",
    ]


def _bind(path: Path) -> list[str]:
    """At its own place; folders above it, which bwrap would close to others, are made open."""
    above = [word for folder in reversed(path.parents[:-1]) for word in ("--dir", str(folder))]
    return [*above, "--ro-bind", str(path), str(path)]
