"""Each gateway as a process on one core, and what it costs there."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateways.ours import POOL_KEY

START_S = 90.0
LITELLM_KEY = "sk-3f1c9b7de0a44c7f9a5d2b6e8c01f7a3"


@contextmanager
def ours(scratch: Path, core: int) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The gateway's own command."""
    port = free_port()
    config = scratch / "gateway.toml"
    limits = "pool_alive_s = 1e9\ntoken_budget = 100000000\n"
    config.write_text(f"port = {port}\nmax_parallel = 4096\n{limits}", encoding="utf-8")
    command = [sys.executable, "-m", "tradewind.gateway", "--config", str(config)]
    keys = {"TRADEWIND_POOL_KEY": POOL_KEY}
    with process([*command, "--workspace", str(scratch)], core, keys, scratch / "ours.log") as run:
        yield await_url(f"http://127.0.0.1:{port}", "/healthz", run), run


@contextmanager
def litellm(python: Path, scratch: Path, engine: str, core: int) -> Iterator[str]:
    """LiteLLM's proxy with one worker."""
    port = free_port()
    config = scratch / "litellm.yaml"
    parameters = f"{{model: openai/policy, api_base: '{engine}/v1', api_key: k}}"
    config.write_text(
        f"model_list:\n  - model_name: policy\n    litellm_params: {parameters}\n"
        "litellm_settings: {telemetry: false, num_retries: 0}\n",
        encoding="utf-8",
    )
    command = [str(python.parent / "litellm"), "--config", str(config), "--port", str(port)]
    quiet = {"LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    quiet["LITELLM_MASTER_KEY"] = LITELLM_KEY  # it does not start without one
    one = ["--host", "127.0.0.1", "--num_workers", "1"]
    with process([*command, *one], core, quiet, scratch / "litellm.log") as run:
        yield await_url(f"http://127.0.0.1:{port}", "/health/liveliness", run)


@contextmanager
def rllm(python: Path, scratch: Path, engine: str, core: int) -> Iterator[str]:
    """rLLM's gateway, capturing into SQLite."""
    port = free_port()
    command = [str(python.parent / "rllm-model-gateway"), "--port", str(port)]
    own = ["--host", "127.0.0.1", "--worker", f"{engine}/v1", "--log-level", "WARNING"]
    store = ["--store", "sqlite", "--db-path", str(scratch / "rllm.sqlite")]
    with process([*command, *own, *store], core, {}, scratch / "rllm.log") as run:
        yield await_url(f"http://127.0.0.1:{port}", "/health", run)


@contextmanager
def process(
    command: list[str], core: int, extra: dict[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A child on one core; killed at the end."""
    root = Path(__file__).resolve().parents[2]
    env = {**os.environ, "PYTHONPATH": str(root / "src"), "NO_PROXY": "127.0.0.1", **extra}
    with log.open("wb") as out:
        child = subprocess.Popen(command, env=env, stdout=out, stderr=out)
    os.sched_setaffinity(child.pid, {core})
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def await_url(url: str, path: str, run: subprocess.Popen[bytes]) -> str:
    """Until it answers anything at all."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(url + path, timeout=5).close()
            return url
        except urllib.error.HTTPError:
            return url
        except OSError:
            if run.poll() is not None:
                break
            time.sleep(0.1)
    raise RuntimeError(f"{url} did not start; its log is beside the benchmark's scratch files")


def memory_mib(run: subprocess.Popen[bytes]) -> float:
    """Resident memory of one process."""
    for line in Path(f"/proc/{run.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("this system does not tell resident memory")


def free_port() -> int:
    """Of this moment."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port
