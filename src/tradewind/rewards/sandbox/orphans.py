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
import threading
import time
from collections.abc import Iterator
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_PATIENCE_S = 1.0
_STRAY_S = 0.1
"""How long a process that may never have been started is looked for."""
_STARTED: set[int] = set()
"""Outermost processes that somebody in this process waits for."""
_LOCK = threading.Lock()


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


def started(pid: int) -> None:
    """`pid` was started by us and is waited for by its `Popen`."""
    with _LOCK:
        _STARTED.add(pid)


def ended(pid: int) -> None:
    """`pid` has been waited for."""
    with _LOCK:
        _STARTED.discard(pid)


def bury_strays(name: str) -> None:
    """Wait for dead processes called `name` that became ours without a word.

    bwrap may be killed between starting its first process and telling us which one it is.
    """
    until = time.monotonic() + _STRAY_S
    while time.monotonic() < until:
        with _LOCK:
            strays = [pid for pid in _dead_children(name) if pid not in _STARTED]
        for pid in strays:
            bury(pid)
        if strays:
            return
        time.sleep(0.001)


def _dead_children(name: str) -> Iterator[int]:
    us = os.getpid()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            before, _, after = stat.read_text().rpartition(")")
        except OSError:  # it has just been waited for
            continue
        state, parent = after.split()[:2]
        number, _, called = before.partition(" (")
        if state == "Z" and int(parent) == us and called == name:
            yield int(number)
