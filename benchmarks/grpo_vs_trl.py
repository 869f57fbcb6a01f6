"""GRPO on the same model and tasks: TRL's `GRPOTrainer` and us, synchronous and asynchronous.

    python benchmarks/grpo_vs_trl.py [--quick] [--json FILE] [--model FOLDER] [--trl-python PATH]

    plan ──► TRL in each dtype, a few steps ──► TRL in its fastest dtype, to the end ─┐
         ──► ours, synchronous ──► ours, asynchronous ────────────────────────────────┴──► ratios

Every side is a process of its own, in turn, on the same cores. All of them read one plan
(`grpo/plan.py`): the same prompts in the same order, 4 prompts x 8 answers a step, 64 new tokens at
temperature 1 without top-p or top-k, the same dense reward, dr_grpo's loss without clipping to
speak of (one update per batch), no KL, the same AdamW. Ratios are against TRL's fastest dtype here.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "src"), str(ROOT / "examples")]

from common.figures import write_figures  # noqa: E402
from common.machine import cores  # noqa: E402
from common.model import model_folder  # noqa: E402
from common.peer import peer_python  # noqa: E402
from common.side import Event, SideFailedError, run_side  # noqa: E402
from grpo.plan import Plan  # noqa: E402
from grpo.questions import prompts  # noqa: E402

TRL = [["torch==2.13.0"], ["torch==2.13.0", "transformers==5.24.0", "trl==1.16.0"]]
DTYPES = ("fp32", "bf16", "bf16_weights")
RATES = ("tokens_per_s", "generated_per_s", "trained_per_s")
TREND = 3
"""The reward of a step is its mean with the two steps before it."""


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    steps: int
    probe_steps: int
    """Of TRL in each dtype; the first `warmup` do not count."""
    warmup: int
    reward: str
    threshold: float
    learning_rate: float
    limit_s: float
    """For one side."""
    dtypes: tuple[str, ...] = DTYPES
    """In which TRL is tried."""
    quick: bool = False


FULL = Size(12, 4, 3, "query_words", 0.45, 5e-5, 3600.0)
QUICK = Size(8, 0, 2, "lower_case", 0.2, 3e-3, 600.0, dtypes=("fp32",), quick=True)


@dataclass(frozen=True)
class Run:
    """What one side reported."""

    events: list[Event]
    size: Size

    @property
    def steps(self) -> list[Event]:
        return [event for event in self.events if event["event"] == "step"]

    @property
    def reached(self) -> int | None:
        """The step at which the reward passes the threshold, if it does."""
        rewards = [step["reward"] for step in self.steps]
        for number in range(TREND - 1, len(rewards)):
            if sum(rewards[number + 1 - TREND : number + 1]) / TREND >= self.size.threshold:
                return number
        return None

    @property
    def counted(self) -> list[Event]:
        """The steps after the warm-up, up to the reward: beyond it answers may be shorter ones."""
        end = len(self.steps) if self.reached is None else self.reached + 1
        return self.steps[self.size.warmup : max(end, self.size.warmup + 1)]

    def step_seconds(self) -> float:
        """Median over the steps that count."""
        return float(median(step["seconds"] for step in self.counted))

    def rates(self) -> dict[str, float]:
        """Tokens/s: generated over the whole step; in generation and in the rest, where told."""
        counted = self.counted
        tokens, seconds = sum(s["tokens"] for s in counted), sum(s["seconds"] for s in counted)
        rates = {"tokens_per_s": tokens / seconds}
        if all("generate_s" in step for step in counted):
            generate = sum(step["generate_s"] for step in counted)
            rates["generated_per_s"] = tokens / generate
            rates["trained_per_s"] = tokens / (seconds - generate)
        return rates

    def seconds_to_reward(self) -> float | None:
        """From the start of the first step, warm-up included; None if it was never reached."""
        if self.reached is None:
            return None
        return float(sum(step["seconds"] for step in self.steps[: self.reached + 1]))

    def cpu_seconds(self) -> float | None:
        """Median CPU seconds of a step over all threads: seconds x threads on a quiet machine.

        If it is far less, others ran and the seconds say little. None for two processes.
        """
        counted = [step["cpu_s"] for step in self.counted if "cpu_s" in step]
        return float(median(counted)) if counted else None

    def peak_mb(self) -> float:
        return float(self.events[-1]["peak_rss_mb"])

    def summary(self) -> dict[str, Any]:
        return {
            "step_seconds": self.step_seconds(),
            "steps_counted": len(self.counted),
            "step_cpu_seconds": self.cpu_seconds(),
            **self.rates(),
            "seconds_to_reward": self.seconds_to_reward(),
            "peak_rss_mb": self.peak_mb(),
            "rewards": [round(step["reward"], 4) for step in self.steps],
            "seconds": [round(step["seconds"], 3) for step in self.steps],
        }


def make_plan(size: Size, model: Path, seed: int) -> Plan:
    """Order-desk questions in a seeded order."""
    return Plan(
        model=str(model),
        prompts=prompts(size.steps * 4, seed),
        reward=size.reward,
        steps=size.steps,
        learning_rate=size.learning_rate,
        threads=1 if size.quick else cores(),
        seed=seed,
    )


class Bench:
    """Runs sides on plans."""

    def __init__(self, size: Size, folder: Path, trl_python: str, prefix: str) -> None:
        self._size, self._folder, self._prefix = size, folder, prefix
        self._trl_python = trl_python

    def trl(self, plan: Plan, dtype: str) -> Run:
        return self._run(f"trl {dtype}", self._trl_python, "grpo.trl_side", plan, dtype)

    def ours(self, plan: Plan, mode: str) -> Run:
        return self._run(f"ours {mode}", sys.executable, "grpo.our_side", plan, mode)

    def _run(self, name: str, python: str, module: str, plan: Plan, option: str) -> Run:
        file = self._folder / "plan.json"
        plan.write(file)
        argv = [python, "-m", module, str(file), option]
        events = run_side(
            name,
            argv,
            limit_s=self._size.limit_s,
            threads=plan.threads,
            prefix=self._prefix,
            shared=option == "async",
        )
        return Run(events, self._size)


def compare(bench: Bench, plan: Plan, size: Size) -> dict[str, Run]:
    """Try TRL's dtypes if there is a choice, then run every side to the end."""
    probe = replace(plan, steps=size.probe_steps, prompts=plan.prompts[: size.probe_steps * 4])
    probes = {d: bench.trl(probe, d) for d in size.dtypes if len(size.dtypes) > 1}
    fastest = min(probes, key=lambda d: probes[d].step_seconds(), default=size.dtypes[0])
    runs = {f"trl probe {dtype}": run for dtype, run in probes.items()}
    runs[f"trl {fastest}"] = bench.trl(plan, fastest)
    runs["ours sync"] = bench.ours(plan, "sync")
    runs["ours async"] = bench.ours(plan, "async")
    return runs


def figures_of(runs: dict[str, Run]) -> dict[str, float]:
    """The ratios; a threshold that a side never reached gives no figure."""
    trl = next(run for name, run in runs.items() if name.removeprefix("trl ") in DTYPES)
    sync, overlapped = runs["ours sync"], runs["ours async"]
    figures = {
        "step_seconds_trl_over_ours_sync": trl.step_seconds() / sync.step_seconds(),
        "step_seconds_trl_over_ours_async": trl.step_seconds() / overlapped.step_seconds(),
        "trained_tokens_over_trl": sync.rates()["trained_per_s"] / trl.rates()["trained_per_s"],
        "peak_memory_trl_over_ours": trl.peak_mb() / sync.peak_mb(),
    }
    bf16 = [run.step_seconds() for name, run in runs.items() if name.startswith("trl probe bf16")]
    if bf16:
        figures["step_seconds_trl_bf16_over_ours_sync"] = min(bf16) / sync.step_seconds()
    for name, ours in (("", sync), ("_async", overlapped)):
        theirs, mine = trl.seconds_to_reward(), ours.seconds_to_reward()
        if theirs is not None and mine is not None:
            figures[f"seconds_to_reward_trl_over_ours{name}"] = theirs / mine
    return figures


def show(runs: dict[str, Run], size: Size) -> None:
    names = ("s/step", "cpu s", "tok/s", "gen/s", "train/s")
    head = f"{'side':22}" + "".join(f"{name:>9}" for name in names)
    print(f"\n{head}{'s to reward':>13}{'peak MB':>10}")
    print(f"(reward {size.reward}, threshold {size.threshold})")
    for name, run in runs.items():
        rates, reached = run.rates(), run.seconds_to_reward()
        columns = [run.cpu_seconds(), *map(rates.get, RATES)]
        numbers = "".join(f"{'':9}" if n is None else f"{n:9.1f}" for n in columns)
        to_reward = "-" if reached is None else f"{reached:.1f}"
        print(f"{name:22}{run.step_seconds():9.2f}{numbers}{to_reward:>13}{run.peak_mb():10.0f}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0], allow_abbrev=False)
    parser.add_argument("--json", type=Path, help="write the record of figures to this file")
    parser.add_argument("--quick", action="store_true", help="tiny random model, under a minute")
    parser.add_argument("--model", type=Path, help="checkpoint folder (default: the quickstart's)")
    parser.add_argument("--trl-python", help="interpreter with TRL (default: make one, once)")
    parser.add_argument("--steps", type=int, help="steps of each side")
    parser.add_argument(
        "--trl-dtypes", nargs="+", choices=DTYPES, help="leave out those that are known slow"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--prefix", default="", help="put before each side's command")
    return parser.parse_args()


def main() -> None:
    args = parse()
    size = QUICK if args.quick else FULL
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"warning: the machine is busy (load {load:.1f}); do not quote these figures")
    if args.steps:
        size = replace(size, steps=args.steps)
    if args.trl_dtypes:
        size = replace(size, dtypes=tuple(args.trl_dtypes))
    with tempfile.TemporaryDirectory() as scratch:
        model = model_folder(args.model, args.quick, Path(scratch))
        plan = make_plan(size, model, args.seed)
        trl_python = args.trl_python or str(peer_python("trl-1.16.0", TRL))
        bench = Bench(size, Path(scratch), trl_python, args.prefix)
        try:
            runs = compare(bench, plan, size)
        except SideFailedError as error:
            sys.exit(f"error: {error}")
    show(runs, size)
    found = {f"{n} {k}": v for n, r in runs.items() for k, v in r.events[0]["versions"].items()}
    details = {
        "plan": json.loads(json.dumps({**plan.__dict__, "prompts": len(plan.prompts)})),
        "threshold": size.threshold,
        "load_before": load,
        "sides": {name: run.summary() for name, run in runs.items()},
    }
    write_figures(args.json, figures_of(runs), versions=found, details=details)


if __name__ == "__main__":
    main()
