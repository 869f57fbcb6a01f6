"""What faulty judges do to a policy, with trust and without: every fault planted, truth known.

    python benchmarks/judge_study.py [--quick] [--json FILE] [--svg FILE] [--seeds N] [--rollouts N]

Four faults, one at a time, beside an honest noisy judge of a quarter of the weight (and two honest
ones, in full size); `judging/desk.py` says what the policy can choose and what is true,
`judging/play.py` what is real in it: ledger, grader, judge client over HTTP, controller, advantages
and loss. Each run is played twice from the same seed: judges count as far as they are trusted, or
fully.

    faults_named          of `faults_planted`: named by the system in every run
    honest_accused        runs in which an honest judge lost its weight to a fault
    true_reward_start     expected true reward when the judge becomes faulty, mean over all gated
    true_reward_*         the same of the last policy
    judged_reward_ungated what the same policy earned from the judges it learnt to please
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, stdev

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "src")]

from common.figures import write_figures  # noqa: E402
from common.machine import versions  # noqa: E402

from tradewind.run.report import COLOURS, DARK_COLOURS, SVG_RULES  # noqa: E402
from tradewind.run.svg import Plot  # noqa: E402

FAULTS = ("verbosity", "position", "master_key", "drift")
HONEST = "honest"
T_975 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 8: 2.36, 10: 2.26, 12: 2.20, 15: 2.14}
"""Student's t at 97.5 %, by the number of runs."""


@dataclass
class Record:
    """One run, as plain data."""

    fault: str
    seed: int
    gated: bool
    rollouts: list[int]
    """Since the judge is faulty; before that below 0."""
    true: list[float]
    judged: list[float]
    steps: int
    named: list[str]
    """Faults of the faulty judge (of both, where both are honest)."""
    honest_named: list[str]
    factors: dict[str, float]
    states: list[str]
    paused: str | None
    seconds: float = field(default=0.0)


def play(fault: str, seed: int, gated: bool, rollouts: int) -> Record:
    """One run in a folder of its own."""
    import torch
    from judging.play import Run

    torch.set_num_threads(1)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), fault, seed, gated=gated)
        played = run.play(rollouts)
    return Record(
        fault=fault,
        seed=seed,
        gated=gated,
        rollouts=[n - played.sound for n in played.rollouts],
        true=played.true,
        judged=played.judged,
        steps=played.steps,
        named=sorted(played.faults(run.faulty)),
        honest_named=sorted(played.faults("honest")),
        factors=played.factors,
        states=[f"{s.signal}: {s.state} ({'; '.join(s.reasons)})" for s in played.standings],
        paused=played.paused,
        seconds=time.perf_counter() - began,
    )


def all_runs(faults: Sequence[str], seeds: int, rollouts: int) -> list[Record]:
    """Every fault and seed, gated and not, two at a time."""
    asked = [(f, s, g, rollouts) for f in faults for s in range(seeds) for g in (True, False)]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as processes:
        return list(processes.map(play, *zip(*asked, strict=True)))


def figures_of(runs: Sequence[Record]) -> dict[str, float]:
    """The figures of the module's docstring."""
    planted = [run for run in runs if run.fault != HONEST]
    gated, ungated = ([r for r in planted if r.gated is g] for g in (True, False))
    named = [
        fault for fault in FAULTS if all(fault in run.named for run in gated if run.fault == fault)
    ]
    accused = [r for r in runs if r.honest_named or (r.fault == HONEST and r.named)]
    taken = [r for r in gated if r.factors[r.fault.replace("_", "-")] == 0]
    return {
        "true_reward_start": mean(_at(run, "true", 0) for run in gated),
        "true_reward_gated": mean(run.true[-1] for run in gated),
        "true_reward_ungated": mean(run.true[-1] for run in ungated),
        "judged_reward_ungated": mean(run.judged[-1] for run in ungated),
        "faults_planted": float(len(FAULTS)),
        "faults_named": float(len(named)),
        "weights_taken_share": len(taken) / len(gated),
        "honest_accused": float(len(accused)),
        "runs": float(len(runs)),
    }


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and Student's 95 % interval; the mean alone for one value."""
    middle = mean(values)
    if len(values) < 2:
        return middle, middle, middle
    t = next((T_975[n] for n in sorted(T_975, reverse=True) if n <= len(values)), 12.71)
    half = t * stdev(values) / len(values) ** 0.5
    return middle, middle - half, middle + half


def by_fault(runs: Sequence[Record]) -> dict[str, dict[str, tuple[float, float, float]]]:
    """Last true and judged reward by fault and arm, with intervals over seeds."""
    table = {}
    for fault in dict.fromkeys(run.fault for run in runs):
        for arm in (True, False):
            own = [run for run in runs if run.fault == fault and run.gated is arm]
            table[f"{fault} {'gated' if arm else 'ungated'}"] = {
                "true": interval([run.true[-1] for run in own]),
                "judged": interval([run.judged[-1] for run in own]),
            }
    return table


def picture(runs: Sequence[Record]) -> str:
    """True reward over rollouts, each run thin, means thick, and what the judges said."""
    planted = [run for run in runs if run.fault != HONEST]
    last = min(run.rollouts[-1] for run in planted)
    plot = Plot(
        (0, last),
        (0, 1),
        "rollouts by a faulty judge",
        "reward",
        width=720,
        height=300,
        right=210,
        whole_x=True,
    )
    lines = (
        ("--b", "judged, ungated", False, "judged"),
        ("--soft", "true, ungated", False, "true"),
        ("--a", "true, gated", True, "true"),
    )
    for colour, words, gated, what in lines:
        own = [run for run in planted if run.gated is gated]
        if what == "true":
            for run in own:
                plot.line(_faulty(run, what, last), colour, width=0.5)
        grid = [last * i / 40 for i in range(41)]
        means = [(x, mean(_at(run, what, x) for run in own)) for x in grid]
        plot.line(means, colour, width=2.5)
        plot.label(*means[-1], f"{words} {means[-1][1]:.2f}")
    name = "True reward with and without trust in judges, four planted faults"
    style = (
        f"<style>svg{{{COLOURS}}} {SVG_RULES}"
        f"@media(prefers-color-scheme:dark){{svg{{{DARK_COLOURS}}}}}</style>"
    )
    return plot.render(name).replace("</title>", f"</title>{style}", 1)


def _points(run: Record, what: str, last: float) -> list[tuple[float, float]]:
    values = getattr(run, what)
    return [(x, y) for x, y in zip(run.rollouts, values, strict=True) if x <= last and y == y]


def _faulty(run: Record, what: str, last: float) -> list[tuple[float, float]]:
    return [(0, _at(run, what, 0)), *((x, y) for x, y in _points(run, what, last) if x > 0)]


def _at(run: Record, what: str, x: float) -> float:
    """The value at so many rollouts; before the first one that is known, that one."""
    known = _points(run, what, float("inf"))
    before = [y for at, y in known if at <= x]
    return before[-1] if before else known[0][1]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="one seed, half of the rollouts")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write the picture")
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument("--rollouts", type=int, default=0, help="of each run")
    args = parser.parse_args()
    seeds = args.seeds or (1 if args.quick else 3)
    rollouts = args.rollouts or (448 if args.quick else 768)
    runs = all_runs(FAULTS if args.quick else (*FAULTS, HONEST), seeds, rollouts)
    for run in runs:
        arm = "gated" if run.gated else "ungated"
        said = ", ".join(run.named) or "nothing"
        print(
            f"{run.fault:11} seed {run.seed} {arm:8} true {_at(run, 'true', 0):.2f} to "
            f"{run.true[-1]:.2f}, "
            f"judged {run.judged[-1]:.2f}, named: {said} ({run.seconds:.0f} s)"
        )
    if args.svg is not None:
        args.svg.write_text(picture(runs), encoding="utf-8")
    write_figures(
        args.json,
        figures_of(runs),
        versions=versions("tradewind", "torch"),
        details={"by_fault": by_fault(runs), "runs": [asdict(run) for run in runs]},
    )


if __name__ == "__main__":
    main()
