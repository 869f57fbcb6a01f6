"""A kernel of its own for each child: gVisor, a kernel in user space that answers system calls.

`runsc run` starts a container from a bundle: a folder with `config.json` (the OCI runtime
specification 1.0) and an empty root, on which everything that the child sees is mounted.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Mapping

from tradewind.rewards.sandbox.orphans import own_folder
from tradewind.rewards.sandbox.view import SCRATCH, SCRATCHES, View

NAME, INSTALL = "gVisor", "apt-get install runsc"
OWN_MEMORY_MB = 128
"""What the kernel itself may hold, beside its processes."""
_NAMESPACES = ("pid", "network", "ipc", "uts", "mount")


def installed() -> str | None:
    """Where the program is."""
    return shutil.which("runsc")


class Bundle:
    """A folder from which one container after the other is started; `close` removes it."""

    def __init__(self) -> None:
        self._folder = own_folder("runsc")

    def walls(
        self,
        sees: View,
        environment: Mapping[str, str],
        scratch_bytes: int,
        uid: int | None,
        command: list[str],
    ) -> list[str]:
        """How to run `command` inside, as `uid`; None is a user of the container without rights."""
        state = self._folder / "state"
        shutil.rmtree(state, ignore_errors=True)  # of a container that was killed
        root = self._folder / "root"
        root.mkdir(exist_ok=True)
        for path, to in sees.links.items():
            link = root / path.lstrip("/")
            if not link.is_symlink():
                link.symlink_to(to)
        user = uid or 1000
        specification = {
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": user, "gid": user},
                "args": command,
                "env": [f"{name}={value}" for name, value in environment.items()],
                "cwd": SCRATCH,
                "noNewPrivileges": True,
                "capabilities": {},
            },
            "root": {"path": str(root), "readonly": True},
            "mounts": _mounts(sees, scratch_bytes),
            "linux": {"namespaces": [{"type": name} for name in _NAMESPACES]},
        }
        (self._folder / "config.json").write_text(json.dumps(specification))
        options = [f"--root={state}", "--network=none", "--ignore-cgroups"]
        options += [] if os.getuid() == 0 else ["--rootless"]
        name = f"tradewind-{secrets.token_hex(8)}"
        run = [installed() or "runsc", *options, "run", f"--bundle={self._folder}", name]
        return [*_dying_with_us(), *run]

    def close(self) -> None:
        """Its containers are gone by then."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _dying_with_us() -> list[str]:
    """What to put before `runsc`, which would outlive us if we are killed; with it everything
    inside ends. The program is part of util-linux, which every Debian has."""
    setpriv = shutil.which("setpriv")
    return [] if setpriv is None else [setpriv, "--pdeathsig", "KILL", "--"]


def _mounts(sees: View, scratch_bytes: int) -> list[dict[str, object]]:
    scratch = ["mode=1777", f"size={scratch_bytes}"]
    return [
        _mount("proc", "/proc"),
        _mount("tmpfs", "/dev"),
        *(_mount("tmpfs", place, *scratch) for place in SCRATCHES),
        *(_mount("bind", str(path), "rbind", "ro") for path in sees.system),
        *(_mount("tmpfs", str(path), "mode=0755") for path in sees.hidden),
        *(_mount("bind", str(path), "rbind", "ro") for path in sees.shown),
    ]


def _mount(kind: str, place: str, *options: str) -> dict[str, object]:
    source = place if kind == "bind" else kind
    return {"destination": place, "type": kind, "source": source, "options": list(options)}
