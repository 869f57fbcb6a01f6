"""A pool process on vLLM: it follows a bucket, proves what it serves, and notices vLLM's end.

The worker extension keeps linear weights as a GPU has them, so patches of positions are applied by
vLLM's own patch loader, and tensors are read back.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import signal
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from fakecontroller import KEY, FakeController
from run import Run

from tradewind.types import GenerateChunk, GenerateRequest, PoolReport, PoolState

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(300)]

WAIT_S = 60
START_S = 250
"""For vLLM to start, on a busy machine."""
PROMPT = (1, 2, 3, 250)


def greedy(report: PoolReport) -> list[GenerateChunk]:
    request = GenerateRequest(
        request_id="r", prompt_ids=PROMPT, max_tokens=16, stop_ids=(), temperature=0
    )
    answer = httpx.post(
        f"{report.url}/v1/generate",
        content=request.model_dump_json(),
        headers={"Authorization": f"Bearer {KEY}"},
        timeout=WAIT_S,
        trust_env=False,
    )
    return [GenerateChunk.model_validate_json(line) for line in answer.text.splitlines()]


def serving(controller: FakeController, version: int, process: Any) -> PoolReport:
    """The first report of `version`; fails with the pool's log as soon as the pool has ended."""
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(queue.Empty):
            report = controller.reports.get(timeout=1)
            if (report.state, report.version) == (PoolState.SERVING, version):
                return report
    raise AssertionError(f"version {version} is not served:\n{process.log.read_text()}")


def test_a_pool_on_vllm_follows_a_bucket_and_proves_what_it_serves(
    run: Run, controller: FakeController, process: Any
) -> None:
    serving(controller, 0, process)
    for number in (1, 2):
        published = run.publish()
        report = serving(controller, number, process)
        (attested,) = (a for a in report.attestations if a.version == number)
        assert attested.state_id == published.state_id
        assert attested.probe_mean is not None and attested.probe_mean < 1e-3
        assert report.proof is not None
        assert report.proof.startswith("state id (read back from the engine) and ")
        assert report.fingerprint is not None and report.fingerprint.version == 1
        chunks = greedy(report)
        assert {chunk.version for chunk in chunks} == {number}
        ids = [i for chunk in chunks for i in chunk.ids]
        logprobs = [p for chunk in chunks for p in chunk.logprobs]
        (scores,) = run.trainer.score([(*PROMPT, *ids)])
        assert np.allclose(logprobs, scores[len(PROMPT) - 1 :], atol=1e-3)
    log = process.log.read_text()
    assert "weights are applied sparse" in log
    assert "version 1 is in vLLM, sparse" in log
    assert "version 2 is in vLLM, sparse" in log


def children_of(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_the_pool_notices_that_vllm_was_killed(process: Any, controller: FakeController) -> None:
    threads = Path(f"/proc/{process.pid}/task").iterdir()
    (server,) = {
        int(child) for thread in threads for child in (thread / "children").read_text().split()
    }
    below = [os.pidfd_open(child) for child in children_of(server)]
    assert len(below) > 1, "the engine core and its helpers"
    os.kill(server, signal.SIGKILL)
    assert process.wait(WAIT_S) == 1, "a restart may help"
    assert "the pool must be started again: vLLM ended (signal 9)" in process.log.read_text()
    for child in below:
        assert select.select([child], [], [], WAIT_S)[0], "a process of vLLM has survived"
        os.close(child)
