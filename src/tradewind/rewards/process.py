"""A child process that answers one question at a time and can be killed at any moment.

    parent                                   child
    ask(question) -- one JSON line, stdin --> reads, works
                  <-- one JSON line, stdout -  answers with plain data

The verdict is always the parent's: the child only ever returns data. On a missed deadline, an
oversized or malformed answer or a death, the whole process group is killed; the next question
starts a new one.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from tradewind.types.record import Json

LEVEL = "L1"
"""Own process, resource limits, empty environment; no network or file namespace of its own."""


_LIMIT = """
import os, resource, sys
memory = int(sys.argv[1])
for limit, most in (
    (resource.RLIMIT_AS, memory),
    (resource.RLIMIT_FSIZE, 0),
    (resource.RLIMIT_CORE, 0),
    (resource.RLIMIT_NOFILE, 64),
    (resource.RLIMIT_CPU, 3600),  # in all; ends it if the parent is gone and it spins
):
    resource.setrlimit(limit, (most, most))
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Limits are set here and not in a `preexec_fn`, which may deadlock in a process with threads."""


class NoAnswer(Exception):
    """The child gave no usable answer. `timed_out` tells a deadline from a death."""

    def __init__(self, why: str, *, timed_out: bool = False) -> None:
        super().__init__(why)
        self.timed_out = timed_out


class KillableProcess:
    """Starts `argv` (its first word is a path) when first asked. Not thread-safe."""

    def __init__(self, argv: Sequence[str], *, memory_mb: int, max_bytes: int) -> None:
        self._argv = list(argv)
        self._memory = memory_mb * 1024 * 1024
        self._max_bytes = max_bytes
        self._child: subprocess.Popen[bytes] | None = None
        self.starts = 0
        """How many children have been started so far."""

    def ask(self, question: Json, deadline_s: float) -> Json:
        """Send a question and return the answer; raises `NoAnswer` within `deadline_s` seconds."""
        child = self._running_child()
        until = time.monotonic() + deadline_s
        try:
            _send(child, json.dumps(question).encode() + b"\n", until)
            return _parse(self._receive(child, until))
        except NoAnswer:
            self.kill()
            raise

    def kill(self) -> None:
        """End the child and everything it started; harmless if there is none."""
        child, self._child = self._child, None
        if child is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _running_child(self) -> subprocess.Popen[bytes]:
        if self._child is not None and self._child.poll() is not None:
            self.kill()
        if self._child is None:
            self.starts += 1
            self._child = subprocess.Popen(
                [sys.executable, "-I", "-c", _LIMIT, str(self._memory), *self._argv],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={"PATH": os.defpath, "LANG": "C.UTF-8"},  # no secret of ours
                start_new_session=True,
                bufsize=0,
            )
            assert self._child.stdin is not None
            os.set_blocking(self._child.stdin.fileno(), False)
        return self._child

    def _receive(self, child: subprocess.Popen[bytes], until: float) -> bytes:
        assert child.stdout is not None
        received = bytearray()
        while not received.endswith(b"\n"):
            _wait(child.stdout.fileno(), select.POLLIN, until)
            piece = os.read(child.stdout.fileno(), 1 << 16)
            if not piece:
                raise NoAnswer("the process died before it answered")
            received += piece
            if len(received) > self._max_bytes:
                raise NoAnswer(f"the process answered with more than {self._max_bytes} bytes")
        return bytes(received)


def _send(child: subprocess.Popen[bytes], line: bytes, until: float) -> None:
    assert child.stdin is not None
    rest = memoryview(line)
    while rest:
        _wait(child.stdin.fileno(), select.POLLOUT, until)
        try:
            rest = rest[os.write(child.stdin.fileno(), rest) :]
        except BrokenPipeError as error:
            raise NoAnswer("the process died before it was asked") from error


def _wait(descriptor: int, what: int, until: float) -> None:
    poll = select.poll()
    poll.register(descriptor, what)
    if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
        raise NoAnswer("the process did not answer in time", timed_out=True)


def _parse(line: bytes) -> Json:
    try:
        answer = json.loads(line)
    except ValueError as error:
        raise NoAnswer("the process answered with something that is not JSON") from error
    if not isinstance(answer, dict):
        raise NoAnswer("the process answered with something that is not an object")
    return answer
