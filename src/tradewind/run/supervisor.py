"""Starts the processes of one arm, restarts what crashes, ends all of them.

    consumes     ProcessSpec, exit codes
    produces     <workspace>/logs/<process>.log, <workspace>/pids/<process>.json
    waits for    nothing: `poll` looks and returns
    unblocked by the launcher's loop, which calls `poll` a few times a second

A process that exits with code 2 was given something that cannot work: the run stops with that
process's own last sentence. Any other exit is a crash: it is started again after a backoff that
doubles, and after `max_quick_crashes` in a row, none of which lived `healthy_s`, the run stops.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tradewind.run.process import (
    Opened,
    PidRecord,
    ProcessSpec,
    last_sentence,
    open_process,
    signal_group,
    start_mark,
)
from tradewind.run.workspace import write_atomic
from tradewind.types import TradewindError

USER_ERROR_CODE = 2


class ProcessFailed(TradewindError):
    """A process crashes again and again, or said that its input cannot work (`user_error`)."""

    def __init__(self, sentence: str, *, user_error: bool = False) -> None:
        self.user_error = user_error
        super().__init__(sentence)


@dataclass
class Child:
    """A spec and what has become of it."""

    spec: ProcessSpec
    log: Path
    popen: Opened | None = None
    started_at: float = 0.0
    """Monotonic seconds."""
    restarts: int = 0
    quick_crashes: int = 0
    due_at: float | None = None
    """When to start it again, in monotonic seconds; None while it runs or after it is done."""
    exit_codes: list[int] = field(default_factory=list)

    @property
    def running(self) -> bool:
        """Whether the process exists."""
        return self.popen is not None and self.popen.poll() is None

    @property
    def done(self) -> bool:
        """Whether a process that may end by itself has ended well."""
        return not self.spec.lasting and bool(self.exit_codes) and self.exit_codes[-1] == 0


class Supervisor:
    """Owns the children of one arm; use as a context manager so that none outlives it."""

    def __init__(
        self,
        workspace: Path,
        *,
        max_quick_crashes: int = 5,
        healthy_s: float = 20.0,
        backoff_s: float = 0.5,
        on_event: Callable[[str, str], None] = lambda process, text: None,
        opens: Callable[[ProcessSpec, Path], Opened] = open_process,
    ) -> None:
        self._logs, self._pids = workspace / "logs", workspace / "pids"
        self._logs.mkdir(parents=True, exist_ok=True)
        self._pids.mkdir(parents=True, exist_ok=True)
        self._max_quick_crashes, self._healthy_s = max_quick_crashes, healthy_s
        self._backoff_s, self._on_event, self._open = backoff_s, on_event, opens
        self.children: dict[str, Child] = {}

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, spec: ProcessSpec) -> None:
        """Start a process, or start it anew with another spec under the same name."""
        previous = self.children.get(spec.name)
        assert previous is None or not previous.running, f"{spec.name} already runs"
        child = Child(spec, self._logs / f"{spec.name}.log")
        child.restarts = previous.restarts if previous else 0
        self.children[spec.name] = child
        self._spawn(child)

    def poll(self) -> None:
        """Notice exits and start again what is due; raises `ProcessFailed` when it gives up."""
        now = time.monotonic()
        for child in self.children.values():
            if child.popen is not None and (code := child.popen.poll()) is not None:
                self._exited(child, code, now)
            if child.due_at is not None and now >= child.due_at:
                child.restarts += 1
                self._spawn(child)

    def done(self, name: str) -> bool:
        """Whether the process `name` has ended with exit code 0."""
        return self.children[name].done

    def restarts(self) -> dict[str, int]:
        """How often each process was started again after a crash."""
        return {name: child.restarts for name, child in self.children.items()}

    def stop(self, names: Iterable[str] | None = None, grace_s: float = 6.0) -> None:
        """End the named processes (default: all), newest first: SIGTERM, then SIGKILL."""
        chosen = list(self.children) if names is None else [n for n in names if n in self.children]
        leaving = [self.children[name] for name in reversed(chosen)]
        for child in leaving:
            child.due_at = None
            if child.popen is not None:
                signal_group(child.popen.pid, signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        for child in leaving:
            if child.popen is not None:
                self._reap(child.spec.name, child.popen, deadline)
                child.popen = None
            self._pid_file(child).unlink(missing_ok=True)
            del self.children[child.spec.name]

    def _reap(self, name: str, popen: Opened, deadline: float) -> None:
        try:
            popen.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._on_event(name, "did not end at SIGTERM and is killed")
        # The leader may be gone and leave members of its group behind.
        signal_group(popen.pid, signal.SIGKILL)
        popen.wait()

    def _spawn(self, child: Child) -> None:
        child.due_at = None
        child.popen = self._open(child.spec, child.log)
        child.started_at = time.monotonic()
        pid = child.popen.pid
        record = PidRecord(name=child.spec.name, pid=pid, mark=start_mark(pid) or "gone")
        write_atomic(self._pid_file(child), record.model_dump_json())

    def _exited(self, child: Child, code: int, now: float) -> None:
        assert child.popen is not None
        name = child.spec.name
        # Members of its group would hold ports and locks that its successor needs.
        signal_group(child.popen.pid, signal.SIGKILL)
        child.popen = None
        child.exit_codes.append(code)
        self._pid_file(child).unlink(missing_ok=True)
        if code == 0 and not child.spec.lasting:
            return
        sentence = last_sentence(child.log)
        if code == USER_ERROR_CODE:
            raise ProcessFailed(f"the {name} stopped: {sentence}", user_error=True)
        healthy = now - child.started_at >= self._healthy_s
        child.quick_crashes = 1 if healthy else child.quick_crashes + 1
        if child.quick_crashes >= self._max_quick_crashes:
            raise ProcessFailed(
                f"the {name} crashed {child.quick_crashes} times in a row "
                f"(exit code {code}); its last line was: {sentence}. Its log is {child.log}"
            )
        delay = self._backoff_s * 2 ** (child.quick_crashes - 1)
        child.due_at = now + delay
        self._on_event(name, f"exit code {code} ({sentence}); starts again in {delay:.1f} s")

    def _pid_file(self, child: Child) -> Path:
        return self._pids / f"{child.spec.name}.json"
