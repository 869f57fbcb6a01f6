"""Which level this machine truly reaches: each one is tried, from the inside.

What is installed says little: containers forbid namespaces, kernels lack filters, root has no
limit on processes. So a probe in a box of each level tries what that level must not allow.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from tradewind.rewards.sandbox.box import ENVIRONMENT, INSIDE, SECCOMP, Box
from tradewind.rewards.sandbox.level import Level
from tradewind.rewards.sandbox.limits import Limits
from tradewind.rewards.sandbox.process import KillableProcess, NoAnswer
from tradewind.types.errors import UserError
from tradewind.types.record import Json

_PROBE = INSIDE / "probe.py"
_DEADLINE_S = 20.0
_LIMITS = Limits(memory_mb=256, processes=8)
INSTALL = "apt-get install bubblewrap"


@dataclass(frozen=True)
class Measured:
    """`level`, and why the next one was not reached."""

    level: Level
    because: str
    means: str = ""
    """What bounds the number of processes, at L3."""

    def __str__(self) -> str:
        means = f" ({self.means})" if self.means else ""
        return f"{self.level.name}{means}; not {Level(self.level + 1).name}: {self.because}"


@functools.cache
def measure() -> Measured:
    """The highest level that holds here; measured once in a process, in about 0.2 s."""
    level, means = Level.L0, ""
    for wanted in (Level.L1, Level.L2, Level.L3):
        box = Box(wanted, _LIMITS)
        try:
            breach = _breach(box)
            if breach is not None:
                return Measured(level, breach, means)
            level, means = wanted, box.means if wanted >= Level.L3 else ""
        finally:
            box.close()
    return Measured(level, "that is a kernel of its own, such as a micro VM for each grader", means)


def require(minimum: Level, what: str) -> Level:
    """The level at which `what` will run: the highest there is.

    Raises `UserError` if that is below `minimum`: nothing runs in weaker walls than asked for.
    """
    measured = measure()
    if measured.level < minimum:
        raise UserError(
            f"{what} needs isolation {minimum.name}, and this machine reaches {measured}",
            fix=_fix(),
        )
    return measured.level


def _fix() -> str:
    if shutil.which("bwrap") is None:
        return INSTALL
    return "start the grader as root or where user namespaces are allowed, or lower `isolation`"


def _breach(box: Box) -> str | None:
    """What the box of some level fails to stop, or None."""
    if box.level >= Level.L2 and shutil.which("bwrap") is None:
        return f"bubblewrap is not installed ({INSTALL})"
    try:
        found = _tried(box)
    except NoAnswer as error:
        return _complaint(box) or str(error)
    return next(iter(_breaches(box.level, found)), None)


def _breaches(level: Level, found: Json) -> Iterator[str]:
    if set(found["environment"]) - {*ENVIRONMENT, "PWD", "LC_CTYPE"}:
        yield f"the child sees {found['environment']} of our environment"
    if found["grabs_memory"]:
        yield "the child can take more memory than it may"
    if level >= Level.L2:
        for fact, breach in _STOPPED_AT_L2.items():
            if found[fact]:
                yield breach
        if found["uid"] == 0:
            yield "the child is still root"
    if level >= Level.L3:
        if found["new_namespace"] or found["traces"]:
            yield "system calls are not filtered on this machine"
        if found["forked"] >= _LIMITS.processes:
            yield "the child can start more processes than it may"


_STOPPED_AT_L2 = {
    "reads_secret": "the child can read our files",
    "writes_system": "the child can write to the system",
    "connects": "the child can reach the network",
    "sees_parent": "the child can see our processes",
}


def _tried(box: Box) -> Json:
    with (
        tempfile.NamedTemporaryFile() as secret,
        contextlib.closing(socket.create_server(("127.0.0.1", 0))) as server,
    ):
        os.chmod(secret.name, 0o644)  # noqa: PTH101  its rights are not what keeps it secret
        question = {
            "secret": secret.name,
            "port": server.getsockname()[1],
            "parent": os.getpid(),
            "forks": 2 * _LIMITS.processes,
            "memory": 2 * _LIMITS.memory_mb << 20,
        }
        process = KillableProcess(box, _PROBE)
        try:
            return process.ask(question, _DEADLINE_S)
        finally:
            process.kill()


def _complaint(box: Box) -> str | None:
    """What bubblewrap itself says, when the probe could not even start."""
    command = box.command(_PROBE)
    argv = ["0" if word == SECCOMP else word for word in command.argv]  # the filter by stdin
    ran = subprocess.run(
        argv, input=command.program, capture_output=True, env=ENVIRONMENT, timeout=_DEADLINE_S
    )
    said = ran.stderr.decode(errors="replace")
    return next((line for line in said.splitlines() if line.startswith("bwrap:")), None)
