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
    settings = f"port = {port}\nmax_parallel = 4096\npool_alive_s = 1e9\n"
    config.write_text(settings, encoding="utf-8")
    command = [sys.executable, "-m", "tradewind.gateway", "--config", str(config)]
    keys = {"TRADEWIND_POOL_KEY": POOL_KEY}
    log = scratch / "ours.log"
    with process([*command, "--workspace", str(scratch)], core, keys, log) as run:
        yield await_url(f"http://127.0.0.1:{port}", "/healthz", run, log), run


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
    log = scratch / "litellm.log"
    with process([*command, *one], core, quiet, log) as run:
        yield await_url(f"http://127.0.0.1:{port}", "/health/liveliness", run, log)


@contextmanager
def rllm(python: Path, scratch: Path, engine: str, core: int) -> Iterator[str]:
    """rLLM's gateway, capturing into SQLite."""
    port = free_port()
    command = [str(python.parent / "rllm-model-gateway"), "--port", str(port)]
    own = ["--host", "127.0.0.1", "--worker", f"{engine}/v1", "--log-level", "WARNING"]
    store = ["--store", "sqlite", "--db-path", str(scratch / "rllm.sqlite")]
    log = scratch / "rllm.log"
    with process([*command, *own, *store], core, {}, log) as run:
        yield await_url(f"http://127.0.0.1:{port}", "/health", run, log)


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


def await_url(url: str, path: str, run: subprocess.Popen[bytes], log: Path) -> str:
    """Until it answers anything at all; raises `RuntimeError` with the end of its log."""
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
    said = log.read_text(encoding="utf-8", errors="replace").strip()[-2000:]
    raise RuntimeError(f"{url} did not start: {said or 'it said nothing'}")


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
