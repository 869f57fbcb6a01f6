"""Compiled code on disk follows all the sources that it was made of."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import tradewind

INNER = """
from numba import njit

@njit(inline="always")
def step():
    return {number}
"""
OUTER = """
from numba import njit
from inner import step

@njit(cache=True)
def walk():
    return step()
"""
MAIN = """
import inner, outer
from tradewind.weights.kernels import forget_stale
print(forget_stale((outer.walk,), (inner, outer)), outer.walk())
"""


def said(folder: Path, number: int) -> str:
    """What a fresh process computes with `number` in the inlined source."""
    (folder / "inner.py").write_text(INNER.format(number=number))
    source = str(Path(tradewind.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), source])}
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, "-B", "-c", MAIN],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.strip()


def test_an_upgrade_of_an_inlined_kernel_does_not_go_on_with_the_old_arithmetic(
    tmp_path: Path,
) -> None:
    (tmp_path / "outer.py").write_text(OUTER)
    assert said(tmp_path, 1) == "False 1"
    assert said(tmp_path, 1) == "False 1", "nothing changed, nothing is thrown away"
    assert said(tmp_path, 2) == "True 2"
