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
from tradewind.rewards.sandbox.bubblewrap import SECCOMP
from tradewind.rewards.sandbox.footprint import descendants, footprint
from tradewind.rewards.sandbox.orphans import adopt_orphans, bury, bury_strangers
from tradewind.types.record import Json

_LOOK_S = 0.1
"""How often the parent looks at the memory of a box while it waits for an answer."""


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
        self._ended_before = 0
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
            self._ended_before = self._box.group.ended if self._box.group else 0
            self._running = _Running(self._box.command(self._script, *self._arguments))
        return self._running

    def _receive(self, child: subprocess.Popen[bytes], until: float) -> bytes:
        assert child.stdout is not None
        received = bytearray()
        most = self._box.limits.answer_bytes
        while not received.endswith(b"\n"):
            self._wait(child, until)
            piece = os.read(child.stdout.fileno(), 1 << 16)
            if not piece and self._ended_for_memory():
                raise self._too_large()
            if not piece:
                raise NoAnswer(f"the process died before it answered{_how(child)}")
            received += piece
            if len(received) > most:
                raise NoAnswer(f"the process answered with more than {most} bytes")
        return bytes(received)

    def _wait(self, child: subprocess.Popen[bytes], until: float) -> None:
        """Wait for something to read; meanwhile all processes of a box keep to its memory."""
        assert child.stdout is not None
        most = self._box.memory
        while most is not None:
            look = min(until, time.monotonic() + _LOOK_S)
            if _ready(child.stdout.fileno(), select.POLLIN, look):
                return
            if footprint(child.pid) > most:
                raise self._too_large()
            if look == until:
                break
        _wait(child.stdout.fileno(), select.POLLIN, until)

    def _ended_for_memory(self) -> bool:
        """Whether the control group has counted too much since the child was started."""
        return self._box.group is not None and self._box.group.ended > self._ended_before

    def _too_large(self) -> NoAnswer:
        most = self._box.limits.memory_mb
        return NoAnswer(f"the process and what it started took more than {most} MiB")


class _Running:
    """One started command: the process we see, and in a box the first one inside."""

    def __init__(self, command: Command) -> None:
        self._boxed = command.boxed
        if command.boxed:
            adopt_orphans()
        filters = [] if command.program is None else [_readable(command.program)]
        try:
            self.child = subprocess.Popen(
                [word.format(*filters) if word == SECCOMP else word for word in command.argv],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=ENVIRONMENT,
                pass_fds=filters,
                start_new_session=True,
                bufsize=0,
            )
        finally:
            for number in filters:
                os.close(number)
        assert self.child.stdin is not None
        os.set_blocking(self.child.stdin.fileno(), False)

    def kill(self) -> None:
        """End it and all it started, and bury what becomes ours.

        What we started is stopped first, so that it starts nothing any more. With the first process
        inside, bwrap's namespace or gVisor's kernel ends, and all others there.
        """
        inside = self._stopped() if self._boxed and self.child.poll() is None else []
        for pid in inside:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()
        for pid in inside:
            bury(pid)
        if self._boxed:
            bury_strangers()
        for pipe in (self.child.stdin, self.child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _stopped(self) -> list[int]:
        """Stop the outermost process; those that it has started, parents first."""
        self.child.send_signal(signal.SIGSTOP)
        if self.child.returncode is not None:  # it had just ended, and has been waited for
            return []
        os.waitid(os.P_PID, self.child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return descendants(self.child.pid)


def _how(child: subprocess.Popen[bytes]) -> str:
    """How a process ended that has closed its pipe, if it has."""
    try:
        code = child.wait(_LOOK_S)
    except subprocess.TimeoutExpired:
        return ""
    return f" (signal {-code})" if code < 0 else f" (exit status {code})"


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


def _ready(descriptor: int, what: int, until: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, what)
    return bool(poll.poll(max(0.0, until - time.monotonic()) * 1000))


def _wait(descriptor: int, what: int, until: float) -> None:
    if not _ready(descriptor, what, until):
        raise NoAnswer("the process did not answer in time", timed_out=True)


def _parse(line: bytes) -> Json:
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise NoAnswer("the process answered with something that is not JSON") from error
    if not isinstance(answer, dict):
        raise NoAnswer("the process answered with something that is not an object")
    return answer
