"""A peer in a virtual environment of its own, so that its pins never meet ours."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path


def peer_python(name: str, installs: Sequence[Sequence[str]]) -> Path:
    """The interpreter of the peer's environment, made on the first call.

    `installs` are the arguments of `pip install`, in turn: torch first, or a peer would pull a
    build of it with gigabytes of GPU libraries.
    """
    folder = _cache() / f"{name}-py{sys.version_info.major}.{sys.version_info.minor}"
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    done = folder / ".complete"
    if done.exists():
        return python
    print(f"making an environment for {name} in {folder} (once)", file=sys.stderr)
    venv.create(folder, with_pip=True, clear=True)
    for arguments in installs:
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet"]
        subprocess.run([*pip, "install", *arguments], check=True)
    done.touch()
    return python


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tradewind" / "peers"
