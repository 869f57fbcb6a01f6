"""Tries what a box of some level must not allow, and says what came of it.

stdin   {"secret": path, "port": int, "parent": pid, "forks": int, "memory": bytes}
stdout  {"uid": int, "reads_secret": bool, "writes_system": bool, "connects": bool,
         "sees_parent": bool, "environment": [name], "new_namespace": bool, "traces": bool,
         "forked": int, "grabs_memory": bool, "kernel": str}
or
stdin   {"hoard": bytes, "holders": int}            that many children hold so much each
stdout  {}
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

_CLONE_NEWUSER = 0x10000000
_PTRACE_TRACEME = 0


def main() -> None:
    """Answer one question."""
    asked = json.loads(sys.stdin.readline())
    found = hoard(**asked) if "hoard" in asked else everything(asked)
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


def everything(asked: dict[str, Any]) -> dict[str, Any]:
    """What came of each attempt."""
    return {
        "uid": os.getuid(),
        "reads_secret": works(lambda: open(asked["secret"]).read()),  # noqa: PTH123
        "writes_system": works(lambda: leave_a_file(f"/usr/.probe-{asked['parent']}")),
        "connects": works(lambda: socket.create_connection(("127.0.0.1", asked["port"]), 2)),
        "sees_parent": os.path.exists(f"/proc/{asked['parent']}/status"),  # noqa: PTH110
        "environment": sorted(os.environ),
        "forked": forked(asked["forks"]),
        "grabs_memory": works(lambda: bytearray(asked["memory"])),
        "new_namespace": in_a_child(lambda libc: libc.unshare(_CLONE_NEWUSER)),
        "traces": in_a_child(lambda libc: libc.ptrace(_PTRACE_TRACEME, 0, 0, 0)),
        "kernel": os.uname().version,
    }


def works(attempt: Callable[[], object]) -> bool:
    """Whether something may be done."""
    try:
        attempt()
    except (OSError, MemoryError):
        return False
    return True


def leave_a_file(path: str) -> None:
    """Write where nothing may be written; taken away at once if it could be."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    os.unlink(path)  # noqa: PTH108


def forked(most: int) -> int:
    """How many children can stand at the same time, of at most `most`."""
    children = []
    try:
        for _ in range(most):
            child = os.fork()
            if child == 0:
                signal.pause()
            children.append(child)
    except OSError:
        pass
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return len(children)


def hoard(hoard: int, holders: int) -> dict[str, Any]:
    """Returns when all of them have held it at the same time."""
    ready, done = os.pipe()
    for _ in range(holders):
        if os.fork() == 0:
            held = b"x" * hoard
            os.write(done, held[:1])
            signal.pause()
    for _ in range(holders):
        os.read(ready, 1)
    return {}


def in_a_child(call: Callable[[Any], int]) -> bool:
    """Whether a system call succeeds, tried where it does no harm."""
    child = os.fork()
    if child == 0:
        os._exit(0 if call(ctypes.CDLL(None)) == 0 else 1)
    return os.waitpid(child, 0)[1] == 0


if __name__ == "__main__":
    main()
