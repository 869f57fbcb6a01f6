"""Every process is killed, frozen and cut off in every phase, and the run goes on as if not.
The database too.

Some 300 faults in four runs, two of them on PostgreSQL, most of them some at the same moment;
TRADEWIND_FULL=1 hurts everything in every phase. The policy hardly moves (lr): it earns what the
base would. The figures are printed, and written to the folder that TRADEWIND_CHAOS names.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import curve
from database import Served
from findings import Findings
from fleet import Fleet
from phases import PHASES
from setting import Setting
from storm import calm, forecast, rage
from watch import StallWatch

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(2400)]

FULL = os.environ.get("TRADEWIND_FULL") == "1"
STORMS = (
    [
        *((0, "sqlite", 1, 8), (1, "sqlite", 2, 3), (2, "sqlite", 3, 6)),
        *((3, "postgres", 1, 8), (4, "postgres", 2, 3), (5, "postgres", 4, 5)),
    ]
    if FULL
    else [(0, "sqlite", 1, 3), (2, "sqlite", 3, 3), (4, "postgres", 2, 2), (5, "postgres", 4, 3)]
)
"""Seed, kind of ledger, faults at once, rounds: of 25 faults on SQLite, of 33 on PostgreSQL."""
STALL_LIMIT_S = 60.0 if FULL else 20.0
OUTSTANDING = 6
"""Groups in work at once: (staleness 2 + 1) times 2 a step."""


@pytest.mark.parametrize(("seed", "kind", "at_once", "rounds"), STORMS)
def test_nothing_is_skipped_or_trained_twice_whatever_dies_freezes_or_is_cut_off(
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    seed: int,
    kind: str,
    at_once: int,
    rounds: int,
    server: Served | None,
) -> None:
    with Fleet(tmp_path, model, Setting(seed=seed), server) as fleet:
        watch = StallWatch(fleet.ledger, STALL_LIMIT_S)
        storm = rage(fleet, forecast(rounds, seed, fleet.kinds(), at_once), watch)
        steps = calm(fleet, watch, steps=3, deadline_s=120.0)
        found = Findings.of(fleet, storm, watch, steps)
        questions = {t.task_id: t.input["question"] for t in fleet.ledger.tasks()}
        crashes, lost_the_ledger, logs = fleet.crashes, fleet.lost_the_ledger, fleet.logs()
    chance = curve.chances(model, questions)
    z = curve.excess((rollout.reward, chance[rollout.task]) for rollout in found.trained)
    ends = {"crashes": crashes, "lost_the_ledger": lost_the_ledger}
    figures = {**found.figures(), "at_once": at_once, "reward_z": round(z, 2), **ends}
    write(seed, figures)
    with capsys.disabled():
        print("\n" + json.dumps({k: v for k, v in figures.items() if k not in ("stalls", "by")}))
        print(storm.table())
    assert found.violations == (), logs
    assert crashes == [], "who is not killed lives"
    assert found.prompts_left <= OUTSTANDING, "what was in work when the run ended, no more"
    assert found.readings == steps
    assert storm.suffered() == dict.fromkeys(fleet.kinds(), rounds)
    assert set(PHASES) <= storm.phases(), "faults in every phase"
    assert max(found.ages) <= 2, "R8"
    assert watch.unexplained == [], "P1"
    assert "replay.diverged" not in found.events
    assert abs(z) < curve.Z_LIMIT, "what was trained is not what the policy earns"


def write(seed: int, figures: dict[str, object]) -> None:
    if folder := os.environ.get("TRADEWIND_CHAOS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        file = Path(folder) / f"chaos-{seed}.json"
        file.write_text(json.dumps(figures, indent=2) + "\n")
