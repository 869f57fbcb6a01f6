"""The whole topology as processes, with a tiny model: what a user of the quickstart gets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tradewind.ledger.ledger import Ledger
from tradewind.run.process import PidRecord, start_mark
from tradewind.types import UserError

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

DEADLINE_S = 500.0
"""For one wait; a loaded machine may take a minute to import torch."""
ONLY_RL = ("--set=control.steps=0", "--set=midtrain.steps=0", "--set=trainer.steps=12")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tradewind", *arguments]


def finished_run(place: Path, env: dict[str, str], *arguments: str) -> Path:
    done = subprocess.run(
        command("run", "tiny.toml", *arguments),
        cwd=place,
        env=env,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    run = place / "runs" / "tiny"
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr + all_logs(run)
    return run


def all_logs(run: Path) -> str:
    logs = sorted([*run.glob("logs/*.log"), *run.glob("control/logs/*.log")])
    return "".join(f"\n== {log.name}\n{log.read_text()[-1500:]}" for log in logs)


def assert_sound(run: Path, steps: int) -> None:
    """What must hold of every arm, whatever happened to its processes."""
    ledger = Ledger.open(run / "ledger.sqlite")
    assert ledger.audit() == []
    assert [step.step for step in ledger.steps()] == list(range(steps))
    states = {version.version: version.state_id for version in ledger.versions()}
    proofs = ledger.attestations()
    assert {proof.pool for proof in proofs} == {"paris", "oregon"}
    assert all(proof.state_id == states[proof.version] for proof in proofs), "W1"
    ledger.close()


def assert_effort_is_counted(run: Path) -> None:
    """Each sampled token of each trained rollout has a purpose; nobody here cheats."""
    ledger = Ledger.open(run / "ledger.sqlite")
    for step in range(4):
        for rollout in (r for group in ledger.groups_of_step(step) for r in group.rollouts):
            scores = {score.source: score for score in rollout.scores}
            spent, sampled = (
                scores["effort"].evidence,
                sum(len(t.completion.output_ids) for t in rollout.turns),
            )
            assert spent["thinking"] + spent["calls"] + spent["message"] == sampled
            assert (spent["unsplit"], spent["turn_count"]) == (0, len(rollout.turns))
            assert scores["exploits"].value == 0.0
    ledger.close()


def test_a_run_ends_with_figures_that_its_ledger_bears_out(
    place: Path, child_env: dict[str, str]
) -> None:
    run = finished_run(place, child_env, "--json")
    assert_sound(run, steps=4)
    assert_sound(run / "control", steps=2)
    results = json.loads((run / "results.json").read_text())
    for arm in ("base", "midtrained", "rl", "control"):
        assert results[f"heldout.{arm}"]["n"] == 8
        assert results[f"heldout.{arm}.unseen"]["n"] == 4
    assert results["staleness.max"] <= 2
    assert 0 < results["weights.bytes_shipped"] < results["weights.bytes_full"]
    assert results["rollouts.trained"] == 4 * 2 * 4
    assert results["tokens.delivered_share"] == 1.0
    assert results["users.chats"] > 3 and results["users.errors"] == 0
    assert_effort_is_counted(run)
    assert "Components of the reward" in (run / "report.html").read_text()
    assert "</html>" in (run / "report.html").read_text()
    assert list((run / "pids").iterdir()) == [], "no process is left"


@pytest.fixture
def launcher(place: Path, child_env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    argv = command("run", "tiny.toml", "--plain", *ONLY_RL)
    with (place / "launcher.log").open("wb") as log:
        process = subprocess.Popen(argv, cwd=place, env=child_env, stdout=log, stderr=log)
        yield process
        process.terminate()
        process.wait(30)


def test_kill_9_of_every_process_and_of_the_launcher_loses_nothing(
    place: Path, child_env: dict[str, str], launcher: subprocess.Popen[bytes]
) -> None:
    run = place / "runs" / "tiny"
    until(lambda: steps_done(run) >= 1, launcher)
    killed = {}
    for name in ("worker", "gateway", "pool-paris", "grader", "controller", "trainer"):
        before = steps_done(run)
        killed[name] = kill(run, name)
        until(lambda name=name: pid_of(run, name) not in (None, killed[name]), launcher)
        until(lambda before=before: steps_done(run) > before or steps_done(run) == 12, launcher)
    launcher.kill()
    launcher.wait()
    run = finished_run(place, child_env, "--resume", "--plain", *ONLY_RL)
    assert_sound(run, steps=12)
    results = json.loads((run / "results.json").read_text())
    assert results["heldout.rl"]["n"] == 8
    assert results["staleness.max"] <= 2


def until(happened: Callable[[], bool], launcher: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not happened():
        assert launcher.poll() is None, "the launcher ended"
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.05)


def steps_done(run: Path) -> int:
    if not (run / "ledger.sqlite").exists():
        return 0
    try:
        ledger = Ledger.open(run / "ledger.sqlite")
    except UserError:
        return 0
    last = ledger.last_step()
    ledger.close()
    return 0 if last is None else last.step + 1


def pid_of(run: Path, name: str) -> int | None:
    try:
        record = PidRecord.model_validate_json((run / "pids" / f"{name}.json").read_text())
    except (OSError, ValueError):
        return None
    return record.pid if start_mark(record.pid) == record.mark else None


def kill(run: Path, name: str) -> int:
    pid = pid_of(run, name)
    assert pid is not None, f"{name} does not run"
    os.kill(pid, signal.SIGKILL)
    return pid
