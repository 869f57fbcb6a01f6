"""A run that is hurt all the time learns as an undisturbed one: some short runs of both kinds.

    storms, staleness 0 ──► rewards, versions ──┬─► excess: each reward, given its version
    straight loops ───────► the same            └─► same: what the last version earns, run by run

With nothing stale, a curve is made of three things only: which prompts come (the audit), what each
version earns (`excess`) and what each step makes of it (`same`, and every replay bit for bit). The
undisturbed twins are straight loops, which whole runs equal bit for bit (`test_synchronous.py`).
The same loops with a fault of their own show that both tests can fail.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import curve
from curve import Run
from fleet import Fleet, make_model
from setting import Setting
from storm import calm, forecast, rage
from warm import apply
from watch import StallWatch

from tradewind.types import Split

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.environ.get("TRADEWIND_FULL") != "1", reason="TRADEWIND_FULL=1 plays it"),
]

STORMS, TWINS, STEPS = 4, 24, 24
"""Runs of each kind, and the step after which they are compared."""
LEARNS = 1e-2
"""A learning rate at which the reward rises from 0.50 to some 0.86 in so many steps."""
STALL_LIMIT_S = 60.0
P_LIMIT = 0.001
"""A sound product fails once in a thousand."""


def stormy(place: Path, model: Path, seed: int) -> tuple[Run, dict[str, Any]]:
    """A run in which every victim suffers every fault; what a straight loop must be told."""
    setting = Setting(seed=seed, lr=LEARNS, max_staleness=0, entry="once")
    with Fleet(place, model, setting) as fleet:
        watch = StallWatch(fleet.ledger, STALL_LIMIT_S)
        rage(fleet, forecast(1, seed, fleet.kinds()), watch)
        last = fleet.ledger.last_step()
        left = STEPS - (0 if last is None else last.step + 1)
        steps = calm(fleet, watch, steps=max(1, left), deadline_s=180.0)
        assert fleet.ledger.audit() == []
        events = {event.kind for event in fleet.ledger.events(limit=10**6)}
        assert "replay.diverged" not in events
        tasks = [(t.task_id, t.input["question"], t.kind) for t in fleet.ledger.tasks(Split.TRAIN)]
        questions = {task: question for task, question, _ in tasks}
        chance = curve.along(model, questions, fleet.bucket, steps + 1)
        trained = curve.rewards(fleet.ledger)
        trainer = {**fleet.trainer_config(), "steps": STEPS}
    earned = [(rollout.reward, chance[rollout.version][rollout.task]) for rollout in trained]
    means = [sum(by_task.values()) / len(by_task) for by_task in chance]
    asked = {"tasks": tasks, "trainer": trainer, "group_size": 4, "max_tokens": 6}
    return Run(earned, means), asked


def straight(
    model: Path, asked: dict[str, Any], seeds: Sequence[int], loses: float = 0.0
) -> list[Run]:
    """Undisturbed runs; of wrong answers the share `loses` is lost on purpose."""
    script = Path(__file__).with_name("straight.py")

    def play(seed: int) -> Run:
        told = {**asked, "seed": seed, "loses": loses}
        return Run(*apply(script, "learned", model, told))

    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(play, seeds))


def excess(runs: Sequence[Run]) -> float:
    """Of all rewards of all runs."""
    return curve.excess(pair for run in runs for pair in run.earned)


def ends(runs: Sequence[Run]) -> list[float]:
    """What each has learned: what its version `STEPS` earns."""
    return [run.means[STEPS] for run in runs]


def test_runs_in_a_storm_earn_and_learn_what_undisturbed_ones_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = make_model(tmp_path / "tiny")
    played = [stormy(tmp_path / f"storm-{seed}", model, seed) for seed in range(STORMS)]
    storms, asked = [run for run, _ in played], played[0][1]
    twins = straight(model, asked, range(100, 100 + TWINS))
    slowly = {**asked, "trainer": {**asked["trainer"], "lr": LEARNS / 3}}
    slow = straight(model, slowly, range(200, 200 + STORMS))
    lossy = straight(model, asked, range(300, 300 + STORMS), loses=0.5)
    kinds = {"storms": storms, "slow": slow, "lossy": lossy, "twins": twins}
    z = {kind: excess(runs) for kind, runs in kinds.items()}
    p = {kind: curve.same(ends(runs), ends(twins)) for kind, runs in list(kinds.items())[:3]}
    with capsys.disabled():
        print(f"\nfrom {twins[0].means[0]:.2f}; {[len(run.means) - 1 for run in storms]} steps")
        for kind, runs in kinds.items():
            shown = " ".join(f"{end:.2f}" for end in ends(runs))
            print(f"{kind}: z = {z[kind]:.2f}, p = {p.get(kind, 1.0):.5f}, ends {shown}")
    assert min(ends(twins)) > twins[0].means[0], "they learn, or there is no curve to compare"
    assert abs(z["twins"]) < curve.Z_LIMIT < z["lossy"], "losses by reward are noticed"
    assert p["slow"] < P_LIMIT, "slower learning is noticed"
    assert abs(z["storms"]) < curve.Z_LIMIT, "what was trained is what its versions earn"
    assert p["storms"] > P_LIMIT, "and what was learned is what undisturbed runs learn"
