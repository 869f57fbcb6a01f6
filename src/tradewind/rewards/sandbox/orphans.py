"""What is left when a process dies before what it made: its children, and its folders.

The first process inside a box is left over when bwrap is killed from outside, and for a moment when
bwrap ends by itself. Left to process 1 of the machine, which in many containers buries nobody, each
verdict would leave a zombie that counts against limits, until honest programs fail. So we adopt
such orphans and bury them. Folders have their owner's process id in their name; who makes the next
one removes those of the dead.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tradewind.rewards.sandbox.footprint import children_of

_PR_SET_CHILD_SUBREAPER = 36
_PATIENCE_S = 1.0


@functools.cache
def adopt_orphans() -> bool:
    """From now on orphans of our children become ours; whether the kernel agreed. Linux only."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        return bool(libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def bury(pid: int) -> None:
    """Wait for a killed process if it has become ours; return at once if it is not."""
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        try:
            if os.waitpid(pid, os.WNOHANG)[0] == pid:
                return
        except OSError as error:
            assert error.errno == errno.ECHILD, error
            return
        time.sleep(0.001)


def bury_strangers() -> None:
    """Bury the dead among our children that were adopted from boxes, and no others.

    They are told by their process id in a namespace of their own; whoever else starts processes
    in here waits for them in peace.
    """
    for pid in children_of(os.getpid()):
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:  # somebody buried it meanwhile
            continue
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        if fields["State"].startswith("Z") and len(fields.get("NSpid", "").split()) > 1:
            bury(pid)


def left_behind(parent: Path, prefix: str) -> Iterator[Path]:
    """Folders `<prefix><process id>-...` in `parent` whose process is gone."""
    for folder in parent.glob(f"{prefix}*-*"):
        pid = folder.name.removeprefix(prefix).partition("-")[0]
        if pid.isdigit() and not Path("/proc", pid).exists():
            yield folder


def own_folder(what: str) -> Path:
    """A new folder among the system's temporary ones; those like it of the dead are removed."""
    prefix = f"tradewind-{what}-"
    for folder in left_behind(Path(tempfile.gettempdir()), prefix):
        shutil.rmtree(folder, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-"))
