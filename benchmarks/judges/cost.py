"""What a thousand rollouts cost by the rung of the ladder that rewards them.

    executable   core seconds of a verdict at the highest isolation measured
    check        core seconds of a criterion's checker
    match        core seconds of an exact comparison
    judged       core seconds of our side, and the judge's tokens: the order desk's four judged
                 criteria, one call each

A core hour and a million tokens have assumed prices; they stand beside the figures, and the figures
are proportional to them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from judges.calls import CRITERIA, USD_PER_MTOK

from tradewind.rewards.config import SignalConfig
from tradewind.rewards.registry import open_signal
from tradewind.types import Outcome, Task, Turn, TurnState
from tradewind.types.episode import Episode

USD_PER_CORE_HOUR = 0.04
ARTEFACTS: dict[str, Any] = {
    "answer": "12 orders are open.",
    "rows": [[12]],
    "sql": "select count(*) from orders",
}
TASK = Task(
    task_id="t",
    kind="k",
    split="train",
    input={"question": "?"},
    reference={"answer": "12 orders are open."},
)
TURN = Turn(
    turn_id="g000001-r0-t0",
    rollout_id="g000001-r0",
    index=0,
    parent=None,
    state=TurnState.DONE,
    prompt_ids=(1,),
    completion=None,
    temperature=1.0,
    messages=(),
    text=ARTEFACTS["answer"],
    started_at=0.0,
)
CHEAP = {
    "check": SignalConfig(
        use="checked", options={"criteria": str(CRITERIA), "criterion": "numbers-from-rows"}
    ),
    "match": SignalConfig(use="exact"),
}


def cost_by_rung(
    figures: Mapping[str, float], judged: Mapping[str, Any], threads: int, seconds: float
) -> tuple[dict[str, float], dict[str, Any]]:
    """`usd_per_1000_<rung>` out of what was measured, and the prices.

    `figures` are those of both benchmarks, `judged` is what `judges.calls.measure` says beside its
    own; `threads` verdicts of an executable at a time had a core each.
    """
    level = max(name for name in figures if name.startswith("verdicts_s_l"))
    core_s = {"executable": threads / figures[level]}
    core_s |= {rung: _seconds_of(config, seconds / len(CHEAP)) for rung, config in CHEAP.items()}
    core_s["judged"] = judged["criteria_judged"] / figures["judge_calls_s"]
    usd = {rung: 1000 * cores * USD_PER_CORE_HOUR / 3600 for rung, cores in core_s.items()}
    usd["judged"] += figures["judge_usd_per_1000"]
    about = {
        "usd_per_core_hour": USD_PER_CORE_HOUR,
        "usd_per_mtok": USD_PER_MTOK,
        "executable_at": level.rpartition("_")[2],
        "core_seconds_of_a_rollout": core_s,
    }
    return {f"usd_per_1000_{rung}": value for rung, value in usd.items()}, about


def _seconds_of(config: SignalConfig, seconds: float) -> float:
    """Of one verdict, in the mean of so long a time."""
    signal = open_signal(config)
    outcome = Outcome(status="completed", artefacts=ARTEFACTS)
    episode = Episode(rollout_id=TURN.rollout_id, task=TASK, outcome=outcome, turns=(TURN,))
    began, done = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        assert signal.score(episode).value == 1.0
        done += 1
    signal.close()
    return (time.perf_counter() - began) / done
