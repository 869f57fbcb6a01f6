"""Processes that start at once: forked from a parent that has imported everything.

    test ── start ──► fork server (imports, once) ── fork ──► become: session, log, environment
      ◄── pid, later the exit code ───────────────                    └──► python -m tradewind.PART

Importing torch is most of what a start costs. All else is as in a run: a process of its own with a
session, a folder, an environment and a log, that opens its files and sockets itself and dies of -9.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import runpy
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tradewind.run.process import ProcessSpec, whole_environment

PARTS = ("controller.main", "gateway.main", "pool.main", "grader.main", "worker.main")
IMPORTED = (
    *(f"tradewind.{part}" for part in PARTS),
    "tradewind.trainer.loop",
    "tradewind.trainer.midtrain",
    "tradewind.pool.engines.embedded.engine",
    "psycopg",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.sqlite",
    "transformers",
    "uvicorn.protocols.http.httptools_impl",
)
DEADLINE_S = 60.0
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(list(IMPORTED))


class Warm:
    """Opened like `run.process.open_process`, in a hundredth of the time."""

    def __init__(self, spec: ProcessSpec, log: Path) -> None:
        asked = spec.model_copy(update={"env": whole_environment(spec)})
        self._process = SERVER.Process(target=become, args=(asked, str(log)), daemon=True)
        self._process.start()
        self.pid = self._process.pid
        deadline = time.monotonic() + DEADLINE_S
        while self.poll() is None and not _leads(self.pid):
            assert time.monotonic() < deadline, f"{spec.name} does not begin"
            time.sleep(0.001)

    def poll(self) -> int | None:
        """Exit code, -n after signal n; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Exit code, once there is one; raises `subprocess.TimeoutExpired`."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout)
        return self._process.exitcode


def _leads(pid: int) -> bool:
    """Whether it has a group of its own, by which it can be ended; False if it is gone."""
    with contextlib.suppress(ProcessLookupError):
        return os.getpgid(pid) == pid
    return False


def apply(script: Path, name: str, *arguments: Any) -> Any:
    """What a function of a script returns, called in a process of its own that has torch."""
    answer, asked = SERVER.Pipe(duplex=False)
    process = SERVER.Process(target=call, args=(asked, str(script), name, *arguments))
    process.start()
    asked.close()
    assert answer.poll(DEADLINE_S), f"{name} of {script} does not return"
    returned = answer.recv()
    process.join(DEADLINE_S)
    return returned


def call(asked: Connection, script: str, name: str, *arguments: Any) -> None:
    """In the forked child."""
    asked.send(runpy.run_path(script)[name](*arguments))


def become(spec: ProcessSpec, log: str) -> None:
    """In the forked child: what `subprocess.Popen` and `python -m` would have done."""
    os.setsid()
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ.clear()
    os.environ.update(spec.env)
    os.chdir(spec.cwd)
    sys.path[:0] = [spec.cwd, *spec.env.get("PYTHONPATH", "").split(os.pathsep)]
    module, *sys.argv[1:] = spec.argv[2:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
