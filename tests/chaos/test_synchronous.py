"""`staleness = 0` is the synchronous mode of the same loop: bit for bit what a straight line gives.

All processes run (controller, gateway, pool, trainer, grader, worker; ledger and bucket between
them) with one rollout at a time; the reference is `straight.py`. Every version's state id is equal,
so every weight is, and before it every sampled token, log-probability, reward and credit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fleet import Fleet, make_model
from setting import Setting

from tradewind.types import Split

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SETTING = Setting(
    seed=5,
    lr=3e-3,
    steps=3,
    stall_s=15.0,
    patience_s=60.0,  # a busy machine must not cost a lease: its refill has another seed
    max_staleness=0,
    concurrency=1,
    max_batch=1,
    entry="once",
    pools=("pool-paris",),
)


def test_without_staleness_every_version_is_that_of_a_straight_loop(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model-tiny")
    with Fleet(tmp_path / "place", model, SETTING) as fleet:
        deadline = time.monotonic() + 200
        while not fleet.done():
            assert time.monotonic() < deadline, fleet.logs()
            fleet.poll()
            time.sleep(0.05)
        assert fleet.ledger.audit() == []
        versions = [version.state_id for version in fleet.ledger.versions()]
        tasks = [(t.task_id, t.input["question"], t.kind) for t in fleet.ledger.tasks(Split.TRAIN)]
        trainer = fleet.trainer_config()
        ages = [step.metrics["trainer/staleness/max"] for step in fleet.ledger.steps()]
    assert ages == [0.0] * SETTING.steps
    asked = {
        "tasks": tasks,
        "seed": SETTING.seed,
        "group_size": 4,
        "max_tokens": 6,
        "loses": 0.0,
        "trainer": trainer,
    }
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("straight.py")), str(model)],
        input=json.dumps(asked),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == versions
    assert len(set(versions)) == SETTING.steps + 1, "every step changed the weights"
