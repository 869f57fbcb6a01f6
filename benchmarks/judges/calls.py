"""How many judge calls a grader makes in a second, and what judged rollouts cost.

    threads ── Judge.decide ── HTTP on loopback ──► fake endpoint (a process of its own)
                    │
                    └── store (SQLite file): budget reserved and settled, reading kept

Every call is a whole one: prompt with fence, JSON reply, quotes checked, budget, store. The fake
endpoint answers at once, so this is what our side can do; a real judge is slower, and its latency
is hidden by `parallel`.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tradewind.rewards.criteria.exhibit import Exhibit
from tradewind.rewards.criteria.file import read_rubric
from tradewind.rewards.judges.endpoint import Endpoint
from tradewind.rewards.judges.judge import Judge
from tradewind.rewards.judges.options import JudgeOptions
from tradewind.rewards.judges.store import Store

HERE = Path(__file__).resolve().parent
CRITERIA = HERE.parents[1] / "examples/orderdesk/criteria.toml"
PARALLEL = 8
USD_PER_MTOK = (0.15, 0.60)
"""Assumed prices of a small hosted judge, prompt and reply; they stand beside the figure."""


def measure(scratch: Path, seconds: float) -> tuple[dict[str, float], dict[str, Any]]:
    """Figures `judge_calls_s`, `judge_cached_s`, `judge_usd_per_1000`; and their circumstances."""
    rubric = read_rubric(CRITERIA)
    judged = [criterion for criterion in rubric.criteria if criterion.checker is None]
    with fake_endpoint() as url:
        options = JudgeOptions(
            url=url,
            model="fake",
            parallel=PARALLEL,
            store=scratch / "judge.sqlite",
            usd_per_mtok_in=USD_PER_MTOK[0],
            usd_per_mtok_out=USD_PER_MTOK[1],
        )
        store = Store(options.store)
        judge = Judge(options, Endpoint(options, store), store)

        def decide(number: int) -> None:
            criterion = judged[number % len(judged)]
            found = judge.decide(rubric, criterion, answer(number))
            assert found.value is not None, found.cause

        first = pace(decide, seconds, 0)
        again = pace(decide, seconds / 4, 0, until=first["n"])
        spent = store.spent("")
        judge.close()
    per_1000 = 1000 * len(judged) * spent.usd / spent.calls
    figures = {
        "judge_calls_s": first["per_s"],
        "judge_cached_s": again["per_s"],
        "judge_usd_per_1000": per_1000,
    }
    about = {
        "threads": PARALLEL,
        "criteria_judged": len(judged),
        "tokens_per_call": round(spent.tokens / spent.calls, 1),
        "usd_per_mtok": USD_PER_MTOK,
        "calls": spent.calls,
    }
    return figures, about


def answer(number: int) -> Exhibit:
    """Evidence like the order desk's, different for each number."""
    text = f"{number} orders from Porto are open, and the oldest of them is from May. " * 3
    return Exhibit(shown={"answer": text, "rows": f"[[{number}]]"}, task="How many are open?")


def pace(work: Any, seconds: float, begin: int, until: int | None = None) -> dict[str, Any]:
    """Calls `work` with rising numbers from `PARALLEL` threads for so long."""
    numbers = iter(range(begin, begin + 10**9))
    ends = time.perf_counter() + seconds

    def loop(_: int) -> int:
        done = 0
        while time.perf_counter() < ends:
            number = next(numbers)
            work(number if until is None else number % until)
            done += 1
        return done

    began = time.perf_counter()
    with ThreadPoolExecutor(PARALLEL) as threads:
        n = sum(threads.map(loop, range(PARALLEL)))
    return {"n": n, "per_s": n / (time.perf_counter() - began)}


@contextmanager
def fake_endpoint(latency_s: float = 0.0) -> Iterator[str]:
    """Its base URL."""
    argv = [sys.executable, str(HERE / "endpoint.py"), str(latency_s)]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


if __name__ == "__main__":
    import json
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(Path(folder), float(sys.argv[1])), indent=2))
