"""A user id that nobody else has, so that limits and rights of a box are its own."""

from __future__ import annotations

import os
import pwd
import random
from pathlib import Path

_FIRST, _LAST = 61184, 64999
"""Above the accounts of people, below `nobody`; system services take ids from here on demand."""


def unused_uid() -> int | None:
    """A host uid without account or process; None if we may not become another user at all."""
    if os.getuid() != 0:
        return None
    busy = _uids_of_processes()
    for uid in random.SystemRandom().sample(range(_FIRST, _LAST + 1), 64):
        if uid not in busy and not _has_account(uid):
            return uid
    return None


def _has_account(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _uids_of_processes() -> set[int]:
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found.add(entry.stat().st_uid)
            except OSError:  # it ended meanwhile
                continue
    return found
