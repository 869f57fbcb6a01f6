"""Ground truth that others wrote: HumanEval's solutions pass, and nothing else does."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from boxes import need
from common import humaneval_grader
from common.humaneval import as_task, read_problems
from graded import opened, verdict

from tradewind.rewards.attacks.catalogue import known_attacks
from tradewind.rewards.sandbox.box import Box
from tradewind.rewards.sandbox.level import Level
from tradewind.rewards.sandbox.limits import Limits
from tradewind.rewards.sandbox.process import KillableProcess

PACKAGES = os.environ.get("TRADEWIND_ENVS_PACKAGES")
FULL = os.environ.get("TRADEWIND_FULL") == "1"
pytestmark = [
    pytest.mark.skipif(not PACKAGES, reason="make test names the folder of the real packages"),
    need(Level.L2),
]
QUICK = [attack for attack in known_attacks("python") if not attack.slow][:: 1 if FULL else 3]
"""What each does to a test of the task's own is tried in `test_attacks.py`, too."""
FOOLED = ("always equal", "frame walk, when called", "frame walk and exit, when called")


@pytest.fixture(scope="module")
def problems():
    return read_problems(Path(PACKAGES).resolve())


def test_all_reference_solutions_pass(problems):
    """In two threads, as a grader does it."""

    def graded(share):
        signal = opened("python")
        try:
            tasks = [as_task(problem) for problem in share]
            assert not [task.task_id for task in tasks if signal.check(task)]
            scored = [(task, verdict(signal, task, **signal.oracle(task))) for task in tasks]
            return [(task.task_id, said.cause) for task, said in scored if said.value != 1.0]
        finally:
            signal.close()

    assert len(problems) == 164
    with ThreadPoolExecutor(2) as threads:
        failed = list(threads.map(graded, (problems[::2], problems[1::2])))
    assert failed == [[], []]


@pytest.mark.slow
@pytest.mark.parametrize("attack", QUICK, ids=lambda attack: attack.name)
def test_no_attack_passes(problems, attack):
    """On every problem in full size, else on one, another one for each attack."""
    at = 3 * QUICK.index(attack)
    sample = problems if FULL else problems[at : at + 1]
    signal = opened("python")
    try:
        tasks = [as_task(problem) for problem in sample]
        passed = [
            task.task_id
            for task in tasks
            if verdict(signal, task, **attack.artefacts(task)).value != 0.0
        ]
    finally:
        signal.close()
    assert passed == []


@pytest.mark.parametrize("name", FOOLED)
def test_humanevals_own_grader_is_fooled_where_ours_is_not(problems, name):
    """Candidate and grader share a process there; it runs in a box here, since it stops nothing."""
    attack = next(attack for attack in known_attacks("python") if attack.name == name)
    task, problem = as_task(problems[0]), problems[0]
    code = attack.artefacts(task)["code"]
    theirs = KillableProcess(
        Box(Level.L2, Limits(processes=32, file_mb=16), packages=[Path(PACKAGES).resolve()]),
        Path(humaneval_grader.__file__),
    )
    ours = opened("python")
    try:
        asked = {"problem": problem, "completion": f"    pass\n\n{code}", "timeout": 10.0}
        assert theirs.ask(asked, 60.0)["passed"] is True
        assert verdict(ours, task, code=code).value == 0.0
    finally:
        theirs.close()
        ours.close()
