"""Which level this machine truly reaches: each one is tried, from the inside.

What is installed says little: containers forbid namespaces, kernels lack filters, root has no
limit on processes. So a probe in a box of each level tries what that level must not allow.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from tradewind.rewards.sandbox import bubblewrap, gvisor
from tradewind.rewards.sandbox.box import ENVIRONMENT, Box
from tradewind.rewards.sandbox.level import Level
from tradewind.rewards.sandbox.limits import Limits
from tradewind.rewards.sandbox.process import KillableProcess, NoAnswer
from tradewind.rewards.sandbox.view import INSIDE
from tradewind.types.errors import UserError
from tradewind.types.record import Json

_PROBE = INSIDE / "probe.py"
_DEADLINE_S = 20.0
_LIMITS = Limits(memory_mb=256, processes=8)


@dataclass(frozen=True)
class Measured:
    """What holds without a kernel of its own, and why no more."""

    level: Level
    """The highest up to L3: what everything gets that asks for no more."""
    because: str = ""
    """Why the next one was not reached; empty at L3."""
    means: str = ""
    """What bounds the number of processes, at L3."""
    landlock: bool = False
    """Whether Landlock alone keeps a child from our files and from TCP."""

    def __str__(self) -> str:
        means = [self.means, "Landlock is a second wall" if self.landlock else ""]
        told = f" ({'; '.join(filter(None, means))})" if any(means) else ""
        why = f"; not {Level(self.level + 1).name}: {self.because}" if self.because else ""
        return f"{self.level.name}{told}{why}"


@functools.cache
def measure() -> Measured:
    """What holds here up to L3; measured once in a process, in about 0.3 s."""
    level, means, landlock = Level.L0, "", False
    for wanted in (Level.L1, Level.L2, Level.L3):
        with contextlib.closing(Box(wanted, _LIMITS)) as box:
            breach, found = _breach(box)
            if breach is not None:
                return Measured(level, breach, means, landlock)
            level, means = wanted, box.means if wanted is Level.L3 else ""
        if wanted is Level.L1:  # nothing else stops these there
            landlock = not (found["reads_secret"] or found["writes_system"] or found["connects"])
    return Measured(level, means=means, landlock=landlock)


@functools.cache
def no_kernel() -> str | None:
    """Why a child can have no kernel of its own here (L4); None if it can. In about 0.7 s."""
    with contextlib.closing(Box(Level.L4, _LIMITS)) as box:
        return _breach(box)[0]


def reaches(wanted: Level) -> bool:
    """Whether a child can be kept apart like this."""
    return no_kernel() is None if wanted is Level.L4 else wanted <= measure().level


def report() -> str:
    """All that was measured, in words. L4 is not tried if nothing has asked for it."""
    if gvisor.installed() is not None and not no_kernel.cache_info().currsize:
        return f"{measure()}; L4 was not tried, since nothing asks for it"
    why = no_kernel()
    return f"{measure()}; " + ("L4 (gVisor) holds, too" if why is None else f"not L4: {why}")


def require(minimum: Level, what: str) -> Level:
    """The level at which `what` will run: the highest there is, L4 only if that is the minimum.

    A kernel of its own costs ten times as much as a process. Raises `UserError` if the machine does
    not reach `minimum`: nothing runs in weaker walls than asked for.
    """
    if not reaches(minimum):
        raise UserError(
            f"{what} needs isolation {minimum.name}, and this machine reaches {report()}",
            fix=_fix(minimum),
        )
    return max(minimum, measure().level)


def _fix(minimum: Level) -> str:
    program = gvisor if minimum is Level.L4 else bubblewrap
    if program.installed() is None:
        return str(program.INSTALL)
    return "start the grader as root or where user namespaces are allowed, or lower `isolation`"


def _breach(box: Box) -> tuple[str | None, Json]:
    """What the box of some level fails to stop, or None; and all that was found."""
    program = gvisor if box.level is Level.L4 else bubblewrap
    if box.level >= Level.L2 and program.installed() is None:
        return f"{program.NAME} is not installed ({program.INSTALL})", {}
    try:
        found = _tried(box)
    except NoAnswer as error:
        return _complaint(box) or str(error), {}
    return next(_breaches(box, found), None), found


def _breaches(box: Box, found: Json) -> Iterator[str]:
    ours = found["kernel"] == os.uname().version
    facts = {
        **found,
        "inherits": bool(set(found["environment"]) - {*ENVIRONMENT, "HOME", "PWD", "LC_CTYPE"}),
        "is_root": found["uid"] == 0,
        "multiplies": found["forked"] >= _LIMITS.processes,
        "unfiltered": ours and (found["new_namespace"] or found["traces"]),
    }
    for since, fact, breach in _STOPPED:
        if box.level >= since and facts[fact]:
            yield breach
    if box.group is not None and box.group.counts_memory and _hoards(box):
        yield "the control group does not limit memory"
    if box.level is Level.L4 and ours:
        yield "the child runs on our own kernel"


_STOPPED = (
    (Level.L1, "inherits", "the child sees our environment"),
    (Level.L1, "grabs_memory", "the child can take more memory than it may"),
    (Level.L2, "reads_secret", "the child can read our files"),
    (Level.L2, "writes_system", "the child can write to the system"),
    (Level.L2, "connects", "the child can reach the network"),
    (Level.L2, "sees_parent", "the child can see our processes"),
    (Level.L2, "is_root", "the child is still root"),
    (Level.L3, "multiplies", "the child can start more processes than it may"),
    (Level.L3, "unfiltered", "system calls are not filtered on this machine"),
)


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
        return _asked(box, question)


def _hoards(box: Box) -> bool:
    """Whether several processes can hold more together than one may."""
    try:
        _asked(box, {"hoard": _LIMITS.memory_mb << 18, "holders": _LIMITS.processes - 2})
    except NoAnswer:
        return False
    return True


def _asked(box: Box, question: Json) -> Json:
    process = KillableProcess(box, _PROBE)
    try:
        return process.ask(question, _DEADLINE_S)
    finally:
        process.kill()


def _complaint(box: Box) -> str | None:
    """What the program of the walls itself says, when the probe could not even start."""
    command = box.command(_PROBE)
    argv = ["0" if word == bubblewrap.SECCOMP else word for word in command.argv]
    ran = subprocess.run(  # the filter by stdin
        argv, input=command.program, capture_output=True, env=ENVIRONMENT, timeout=_DEADLINE_S
    )
    said = ran.stderr.decode(errors="replace").splitlines()
    return next((line for line in said if line.startswith(("bwrap:", "runsc", "creating"))), None)
