"""Processes whose parent died before them.

Killing bwrap from outside leaves its first process inside to process 1 of the machine. Where that
one does not bury its children (many containers), each verdict would leave a zombie that counts
against the user's limit of processes, until honest programs fail. So we adopt them and bury them.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import time

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
