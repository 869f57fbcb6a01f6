"""Processes whose parent died before them.

The first process inside a box is left over when bwrap is killed from outside, and for a moment when
bwrap ends by itself. Left to process 1 of the machine, which in many containers buries nobody, each
verdict would leave a zombie that counts against limits, until honest programs fail. So we adopt
such orphans and bury them.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import time
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
