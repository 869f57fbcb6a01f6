"""The gateway's benchmark measures a gateway that starts."""

from __future__ import annotations

import asyncio
import os
import sys
from itertools import cycle
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from gateways import sides
from gateways.engine import TEXT, FakeEngine
from gateways.load import Load
from gateways.ours import write_ledger, write_model


def test_a_setting_that_is_gone_does_not_keep_the_measured_gateway_from_starting(tmp_path):
    tokenizer = write_model(tmp_path / "model")
    ids = tokenizer.encode(TEXT, add_special_tokens=False).ids

    async def calls_s() -> float:
        engine = FakeEngine([*ids, tokenizer.token_to_id("<|im_end|>")])
        await engine.start()
        keys = write_ledger(tmp_path / "ledger.sqlite", engine.url, 4)
        with sides.ours(tmp_path, min(os.sched_getaffinity(0))) as (url, _run):
            return await Load(url, "/v1/chat/completions", cycle(keys)).closed(2, 0.2)

    assert asyncio.run(calls_s()) > 0


def test_a_side_that_does_not_start_says_why(tmp_path):
    log = tmp_path / "side.log"
    command = ["sh", "-c", "echo the port is taken >&2; exit 1"]
    with sides.process(command, min(os.sched_getaffinity(0)), {}, log) as run:
        run.wait()
        with pytest.raises(RuntimeError, match="did not start: the port is taken"):
            sides.await_url("http://127.0.0.1:9", "/", run, log)
