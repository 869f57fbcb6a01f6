"""Runs a Python program that nobody has read, once per input, each time in a process of its own.

stdin   {"code": str}                       once
        {"stdin": str, "most": int}         most: bytes of output that are read
stdout  {"ok": true} | {"raised": [class name, message]}
        {"stdout": str, "cut": bool}        what it printed; how it ended says nothing

The program runs as `__main__` in a fork of this process, which never ran anything of it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import tempfile

from channel import open_channel  # type: ignore[import-not-found]  # beside this script

TYPE_CHECKING = False  # `typing` itself takes long to import
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any


def run(code: CodeType, told: str, most: int) -> dict[str, Any]:
    """What the program prints when it is told something."""
    with tempfile.TemporaryFile() as stdin:
        stdin.write(told.encode())
        stdin.seek(0)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.dup2(stdin.fileno(), 0)
            os.dup2(write, 1)
            os.closerange(3, 1 << 10)  # the channel among them
            become(code)
    os.close(write)
    printed = until_it_ends(child, read, most)
    os.close(read)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return {"stdout": printed[:most].decode(errors="replace"), "cut": len(printed) > most}


def until_it_ends(child: int, read: int, most: int) -> bytes:
    """What is printed until the program itself ends, even if what it started holds the pipe."""
    printed = bytearray()
    end = os.pidfd_open(child)
    poll = select.poll()
    for number in (read, end):
        poll.register(number, select.POLLIN)
    os.set_blocking(read, False)
    ended = False
    while len(printed) <= most and not ended:
        ended = end in dict(poll.poll())
        with contextlib.suppress(BlockingIOError):
            while len(printed) <= most:
                piece = os.read(read, 1 << 16)
                if not piece:
                    os.close(end)
                    return bytes(printed)
                printed += piece
    os.close(end)
    return bytes(printed)


def become(code: CodeType) -> None:
    """Be the program; never returns."""
    try:
        os.setsid()
        sys.stdin, sys.stdout = open(0), open(1, "w")  # noqa: SIM115
        sys.argv = ["program.py"]
        exec(code, {"__name__": "__main__", "__builtins__": __builtins__})
    except BaseException:  # noqa: BLE001  # boundary: anybody's code
        pass
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
        os._exit(0)


def main() -> None:
    """Answer until the parent closes the pipe."""
    questions, answer = open_channel()
    code = None
    for question in questions:
        if "stdin" in question:
            assert code is not None
            answer(run(code, question["stdin"], question["most"]))
            continue
        try:
            code = compile(question["code"], "program.py", "exec")
            answer({"ok": True})
        except Exception as error:  # noqa: BLE001  # boundary: anybody's code
            answer({"raised": [type(error).__name__, str(error)[:500]]})


if __name__ == "__main__":
    main()
