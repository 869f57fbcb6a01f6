"""One child process by id: how to tell that a pid is still ours, and how to end it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Collection
from pathlib import Path
from typing import Protocol

from pydantic import Field

from tradewind.ledger.place import PASSWORD_VARIABLES
from tradewind.types import Record
from tradewind.weights.signing import VARIABLE as SIGNING_KEY


class ProcessSpec(Record):
    """What the supervisor starts: `ProcessSpec(name="grader", argv=(python, "-m", ...))`."""

    name: str
    """Also names the log file and the heartbeat."""
    argv: tuple[str, ...]
    env: dict[str, str] = Field(default_factory=dict)
    """Added to the launcher's environment; secrets travel here and never in argv."""
    hidden: tuple[str, ...] = ()
    """Variables of the launcher's environment that are none of its business."""
    cwd: str | None = None
    """Where it works; None is the launcher's own folder."""
    lasting: bool = True
    """False: exit code 0 means that it is done; otherwise any exit is a crash."""


class Opened(Protocol):
    """A process that leads a group of its own, as its supervisor sees it."""

    @property
    def pid(self) -> int:
        """Also the group's."""

    def poll(self) -> int | None:
        """Exit code, -n after signal n; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Exit code, once there is one; raises `subprocess.TimeoutExpired`."""


def open_process(spec: ProcessSpec, log: Path) -> Opened:
    """Start what `spec` says; what it prints is appended to `log`."""
    with log.open("ab") as file:
        return subprocess.Popen(
            spec.argv,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=whole_environment(spec),
            cwd=spec.cwd,
            start_new_session=True,
        )


def whole_environment(spec: ProcessSpec) -> dict[str, str]:
    """What a process has in its environment."""
    return {**inherited_environment(spec.hidden), **spec.env}


class PidRecord(Record):
    """Written beside the logs while a process runs, so that a later launcher can end it."""

    name: str
    pid: int
    mark: str
    """Start mark of the pid; a recycled pid has another one."""


def start_mark(pid: int) -> str | None:
    """A text that differs between two processes with the same pid; None if there is none."""
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            return None
        # Field 3 is the state, field 22 the start time in clock ticks since boot (proc(5)).
        return None if fields[0] in "ZX" else fields[19]
    found = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or None


def signal_group(pid: int, number: signal.Signals) -> None:
    """Send a signal to the process group that `pid` leads; nothing if it is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def end_stale(folder: Path, grace_s: float = 5.0) -> list[str]:
    """End processes that an earlier launcher left behind; returns their names.

    Only a pid whose start mark equals the recorded one is touched.
    """
    ended: list[str] = []
    for file in sorted(folder.glob("*.json")):
        record = PidRecord.model_validate_json(file.read_text(encoding="utf-8"))
        if start_mark(record.pid) == record.mark:
            signal_group(record.pid, signal.SIGTERM)
            deadline = time.monotonic() + grace_s
            while start_mark(record.pid) == record.mark and time.monotonic() < deadline:
                time.sleep(0.02)
            signal_group(record.pid, signal.SIGKILL)
            ended.append(record.name)
        file.unlink(missing_ok=True)
    return ended


def last_sentence(log: Path, tail_bytes: int = 8192) -> str:
    """The last non-empty line of a log; for a person who should not have to open it."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - tail_bytes))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return "it left no log"
    spoken = [line.strip() for line in lines if line.strip()]
    return spoken[-1] if spoken else "it said nothing"


def inherited_environment(hidden: Collection[str] = ()) -> dict[str, str]:
    """The launcher's environment but for the signing key, which is the trainer's alone, the
    database's password, and what else is `hidden`: workers and data makers run the customer's code.
    """
    secret = {SIGNING_KEY, *PASSWORD_VARIABLES, *hidden}
    return {name: value for name, value in os.environ.items() if name not in secret}


def database_password() -> dict[str, str]:
    """What a process needs in its environment to open the ledger's database."""
    return {name: os.environ[name] for name in PASSWORD_VARIABLES if name in os.environ}
