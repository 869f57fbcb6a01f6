"""The gateway's benchmark measures a gateway that starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from gateways import sides
from gateways.ours import write_ledger, write_model

CORE = min(os.sched_getaffinity(0))


def test_a_setting_that_is_gone_does_not_keep_the_measured_gateway_from_starting(tmp_path):
    write_model(tmp_path / "model")
    write_ledger(tmp_path / "ledger.sqlite", "http://127.0.0.1:9", 1)
    with sides.ours(tmp_path, CORE) as (url, _run):
        assert httpx.get(f"{url}/healthz", trust_env=False).json() == {"pools": 1}


def test_a_side_that_does_not_start_says_why(tmp_path):
    log = tmp_path / "side.log"
    command = ["sh", "-c", "echo the port is taken >&2; exit 1"]
    with sides.process(command, CORE, {}, log) as run:
        run.wait()
        with pytest.raises(RuntimeError, match="did not start: the port is taken"):
            sides.await_url("http://127.0.0.1:9", "/", run, log)
