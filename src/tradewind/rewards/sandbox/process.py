"""A child process that answers one question at a time and can be killed at any moment.

    parent                                   child, in a box
    ask(question) -- one JSON line, stdin --> reads, works
                  <-- one JSON line, stdout -  answers with plain data

The verdict is always the parent's: the child only ever returns data. On a missed deadline, an
oversized or malformed answer or a death, everything in the box is killed; the next question
starts a new child.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from pathlib import Path

from tradewind.rewards.sandbox.box import ENVIRONMENT, Box, Command
from tradewind.rewards.sandbox.orphans import adopt_orphans, bury, bury_strays, ended, started
from tradewind.types.record import Json

_GRACE_S = 2.0
"""Longest that bwrap may take to notice that the first process inside is gone."""


class NoAnswer(Exception):
    """The child gave no usable answer. `timed_out` tells a deadline from a death."""

    def __init__(self, why: str, *, timed_out: bool = False) -> None:
        super().__init__(why)
        self.timed_out = timed_out


class KillableProcess:
    """Starts `script` in `box` when first asked. Not thread-safe.

    A child in a box of L2 or more ends with the thread that first asked it.
    """

    def __init__(self, box: Box, script: Path, *arguments: str) -> None:
        self._box, self._script, self._arguments = box, script, arguments
        self._running: _Running | None = None
        self.starts = 0
        """How many children have been started so far."""

    def ask(self, question: Json, deadline_s: float) -> Json:
        """Send a question and return the answer; raises `NoAnswer` within `deadline_s` seconds."""
        running = self._run()
        until = time.monotonic() + deadline_s
        try:
            _send(running.child, json.dumps(question).encode() + b"\n", until)
            return _parse(self._receive(running.child, until))
        except NoAnswer:
            self.kill()
            raise

    def kill(self) -> None:
        """End the child and everything it started; harmless if there is none."""
        running, self._running = self._running, None
        if running is not None:
            running.kill()

    def close(self) -> None:
        """End the child for good, and give back what its box holds."""
        self.kill()
        self._box.close()

    @property
    def pid(self) -> int | None:
        """Of the outermost process of the child; None if none runs."""
        return None if self._running is None else self._running.child.pid

    def _run(self) -> _Running:
        if self._running is not None and self._running.child.poll() is not None:
            self.kill()
        if self._running is None:
            self.starts += 1
            self._running = _Running(self._box.command(self._script, *self._arguments))
        return self._running

    def _receive(self, child: subprocess.Popen[bytes], until: float) -> bytes:
        assert child.stdout is not None
        received = bytearray()
        most = self._box.limits.answer_bytes
        while not received.endswith(b"\n"):
            _wait(child.stdout.fileno(), select.POLLIN, until)
            piece = os.read(child.stdout.fileno(), 1 << 16)
            if not piece:
                raise NoAnswer("the process died before it answered")
            received += piece
            if len(received) > most:
                raise NoAnswer(f"the process answered with more than {most} bytes")
        return bytes(received)


class _Running:
    """One started command: the child we see, and the first process inside its box."""

    def __init__(self, command: Command) -> None:
        opened: dict[str, int] = {}
        self._status: int | None = None
        if command.reports:
            adopt_orphans()
            self._status, opened["status"] = os.pipe()
        if command.program is not None:
            opened["seccomp"] = _readable(command.program)
        named = {f"{{{name}}}": str(number) for name, number in opened.items()}
        try:
            self.child = subprocess.Popen(
                [named.get(word, word) for word in command.argv],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=ENVIRONMENT,
                pass_fds=tuple(opened.values()),
                start_new_session=True,
                bufsize=0,
            )
        finally:
            for number in opened.values():
                os.close(number)
        started(self.child.pid)
        assert self.child.stdin is not None
        os.set_blocking(self.child.stdin.fileno(), False)

    def kill(self) -> None:
        """The first process inside goes first: the kernel then ends all others there, and bwrap
        buries it. Killed from outside in, it would be left to whoever is process 1."""
        boxed = self._status is not None
        inner = self._inner()
        if inner is not None and self.child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(inner, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.child.wait(_GRACE_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()
        ended(self.child.pid)
        if inner is not None:
            bury(inner)
        elif boxed:
            bury_strays("bwrap")
        for pipe in (self.child.stdin, self.child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _inner(self) -> int | None:
        """Which process is the first one inside, if bwrap got as far as starting it."""
        if self._status is None:
            return None
        said = b""
        with contextlib.suppress(OSError, ValueError, KeyError):
            os.set_blocking(self._status, False)
            said = os.read(self._status, 1 << 12)
        os.close(self._status)
        self._status = None
        for line in said.splitlines():
            with contextlib.suppress(ValueError):
                number = json.loads(line).get("child-pid")
                if number is not None:
                    return int(number)
        return None


def _readable(program: bytes) -> int:
    """A descriptor from which `program` can be read once."""
    read, write = os.pipe()
    os.write(write, program)  # far below what a pipe holds
    os.close(write)
    return read


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
    except (ValueError, RecursionError) as error:
        raise NoAnswer("the process answered with something that is not JSON") from error
    if not isinstance(answer, dict):
        raise NoAnswer("the process answered with something that is not an object")
    return answer
