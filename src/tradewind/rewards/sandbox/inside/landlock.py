"""A second wall in the kernel: this process gives up files, TCP and signals for good (Landlock).

It stands inside whatever else there is, needs no rights and no program, and holds for all that the
process starts. Numbers and structures: include/uapi/linux/landlock.h; the calls have the same
numbers on every architecture.
"""

from __future__ import annotations

import ctypes
import os
import struct

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION, _PATH_BENEATH, _PR_SET_NO_NEW_PRIVS = 1, 1, 38
_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}
"""How many rights over files there are since which version: bits from 0 up."""
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL = 1, 2, 4, 8, 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_ON_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
_TCP = 0b11
"""Bind and connect, since version 4."""
_SCOPES = 0b11
"""Abstract sockets and signals, since version 6."""


def restrict(readable: list[str], writable: list[str]) -> int:
    """From now on only these files and folders can be opened; no TCP, no signal to others.

    The version of Landlock that holds it, 0 where the kernel has none. What is not there is left
    out. Raises `OSError` if the kernel has Landlock and refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def call(*arguments: object) -> int:
        found = int(libc.syscall(*arguments))
        if found < 0:
            raise OSError(ctypes.get_errno(), "Landlock refuses")
        return found

    try:
        version = call(_CREATE_RULESET, None, 0, _ASK_VERSION)
    except OSError:
        return 0
    known = (1 << max(n for since, n in _RIGHTS.items() if since <= version)) - 1
    asked = struct.pack("=QQQ", known, _TCP if version >= 4 else 0, _SCOPES if version >= 6 else 0)
    ruleset = call(_CREATE_RULESET, asked, 8 if version < 4 else 16 if version < 6 else 24, 0)
    for paths, rights in ((readable, _READ), (writable, known)):
        for path in paths:
            try:
                place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue
            of_it = known & rights & (~0 if os.path.isdir(path) else _ON_A_FILE)  # noqa: PTH112
            call(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", of_it, place), 0)
            os.close(place)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    call(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)
    return version
