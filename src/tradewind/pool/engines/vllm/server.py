"""The process in which vLLM runs: started, waited for, watched, and ended with all its children.

    folder (0700) ── socket    the only way in: no port is opened for HTTP
                  ── lib       a link to the package tradewind, all that vLLM's Python sees of ours
                  ── log       what vLLM says; its tail is in every error
                  ── parcels   on their way to the worker

Every start has a folder and a key of its own. The key guards every route (`guard.py`).
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import tradewind
from tradewind.pool.engines.vllm.child import FOLDER
from tradewind.pool.engines.vllm.config import VllmConfig
from tradewind.pool.engines.vllm.guard import KEY
from tradewind.types import UserError

TERM_S = 5.0
"""For vLLM to end by itself, in seconds; then it is killed."""
TAIL = 4000
"""Bytes of the log that an error shows."""
PLUGIN = "tradewind.pool.engines.vllm.plugin.TradewindWorker"
SHARED_MEMORY = Path("/dev/shm")
OURS = ("TRADEWIND_", "PYTHON", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Beginnings of the environment variables that vLLM does not inherit."""


class VllmServer:
    """One start of `vllm serve`; `start`, then `stop`."""

    def __init__(self, config: VllmConfig, arguments: Mapping[str, str], room: int) -> None:
        """`arguments` are options of `vllm serve` and their values; `room` is the number of bytes
        that the largest parcel may have.
        """
        self._config, self._arguments = config, arguments
        self._process: subprocess.Popen[bytes] | None = None
        self.key = secrets.token_urlsafe(32)
        scratch = config.scratch or _roomy(room)
        self.folder = Path(tempfile.mkdtemp(prefix="tradewind-", dir=scratch))  # 0700

    @property
    def socket(self) -> Path:
        """Where vLLM listens."""
        return self.folder / "socket"

    @property
    def pid(self) -> int:
        """Of the server process, which leads the group of all its processes."""
        assert self._process is not None, "the server is not started"
        return self._process.pid

    def start(self) -> None:
        """Starts the process. Raises UserError if its Python cannot be run."""
        library = self.folder / "lib"
        library.mkdir()
        (library / "tradewind").symlink_to(Path(tradewind.__file__).parent)
        python = self._config.python or Path(sys.executable)
        try:
            with (self.folder / "log").open("xb") as log:
                self._process = subprocess.Popen(
                    self._command(python),
                    stdin=subprocess.PIPE,  # its end is the child's sign that we are gone
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=self._environment(library),
                    start_new_session=True,
                )
        except OSError as error:
            self.stop()
            raise UserError(
                f"vLLM's Python cannot be started ({error.strerror})",
                value=str(python),
                fix="set vllm.python to the interpreter of the environment that has vLLM",
            ) from error

    def ended(self) -> str | None:
        """Why the process is no more; None while it runs."""
        if self._process is None or (code := self._process.poll()) is None:
            return None
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        return f"vLLM ended ({how}); the end of its log:\n{self.tail()}"

    def tail(self) -> str:
        """The end of vLLM's log."""
        try:
            with (self.folder / "log").open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - TAIL))
                return log.read().decode("utf-8", "replace").strip()
        except FileNotFoundError:
            return "(there is no log)"

    def stop(self) -> None:
        """Ends the whole process group and removes the folder. Idempotent."""
        process = self._process
        if process is not None:
            if process.poll() is None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(TERM_S)
            _kill_group(process.pid)  # its children, if it left any
            process.wait()
            if process.stdin is not None:
                process.stdin.close()
            self._process = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def _command(self, python: Path) -> list[str]:
        options = {
            **self._arguments,
            "--uds": str(self.socket),
            "--middleware": "tradewind.pool.engines.vllm.guard.Guard",
            "--worker-extension-cls": PLUGIN,
            "--weight-transfer-config": json.dumps({"backend": "tradewind"}),
            "--logprobs-mode": "processed_logprobs",
            "--scheduling-policy": "priority",
        }
        flags = ["--tokens-only", "--skip-tokenizer-init", "--disable-uvicorn-access-log"]
        argv = [str(python), "-m", "tradewind.pool.engines.vllm.child", *flags]
        for name, value in options.items():
            argv += [name, value]
        return [*argv, *self._config.arguments]

    def _environment(self, library: Path) -> dict[str, str]:
        """Ours without what is about us: our keys, our Python path (vLLM's environment has its own
        versions of everything), and the threads of our arithmetic.
        """
        ours = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        theirs = self._config.environment
        paths = [str(library), theirs.get("PYTHONPATH", "")]
        return ours | {
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            **theirs,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "VLLM_SERVER_DEV_MODE": "1",
            KEY: self.key,
            FOLDER: str(self.folder),
        }


def _roomy(room: int) -> Path | None:
    """Shared memory if it has place for `room` bytes twice, else None: the temporary folder."""
    try:
        free = shutil.disk_usage(SHARED_MEMORY).free
    except OSError:
        return None
    fits = os.access(SHARED_MEMORY, os.W_OK) and free > 2 * room
    return SHARED_MEMORY if fits else None


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
