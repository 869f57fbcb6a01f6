"""`vllm serve` as a child of the pool: `python -m tradewind.pool.engines.vllm.child ARGUMENTS`.

    pool ── keeps a pipe open ──► stdin ──► end of file: folder removed, process group killed

Runs under vLLM's Python. However the pool ends, kill -9 included, its end of the pipe closes.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from importlib import import_module

FOLDER = "TRADEWIND_VLLM_FOLDER"
"""Environment variable with the folder of this start."""


def main() -> None:
    """Never returns before vLLM does."""
    threading.Thread(target=_die_with_the_pool, daemon=True).start()
    sys.argv = ["vllm", "serve", *sys.argv[1:]]
    import_module("vllm.entrypoints.cli.main").main()


def _die_with_the_pool() -> None:
    pipe = os.dup(0)  # so that nothing that vLLM does with its stdin ends the watch
    while os.read(pipe, 1):
        pass
    if folder := os.environ.get(FOLDER):
        shutil.rmtree(folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
