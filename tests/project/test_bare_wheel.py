"""`pip install tradewind` without extras gives everything but tensors, in seconds."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = """types ledger render weights rewards envs algo
worker controller gateway grader relay run.cli"""
PROBE = f"""
import importlib, pkgutil, sys, tradewind
for name in {PARTS.split()!r}:
    module = importlib.import_module("tradewind." + name)
    for found in pkgutil.walk_packages(getattr(module, "__path__", []), module.__name__ + "."):
        if not any(part in found.name for part in (".losses", ".inside.", "__main__")):
            importlib.import_module(found.name)
heavy = {{"torch", "transformers", "safetensors", "vllm", "ray"}} & set(sys.modules)
assert not heavy, heavy
"""


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_bare_wheel_runs_without_torch(tmp_path: Path) -> None:
    def run(*command: str | Path) -> str:
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout

    run(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path / "dist", ROOT)
    wheel = next((tmp_path / "dist").glob("*.whl"))
    venv.create(tmp_path / "bare", with_pip=True)
    python = tmp_path / "bare/bin/python"
    run(python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", wheel)
    run(python, "-c", PROBE)
    assert "run" in run(tmp_path / "bare/bin/tradewind", "--help")
