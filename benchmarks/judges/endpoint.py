"""The fake endpoint in a process of its own: python endpoint.py [SECONDS], prints its URL.

It says yes with the first words of the evidence as its quote, after SECONDS, until its standard
input is closed.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "src")]

from common.scripted_judge import ScriptedJudge, reply  # noqa: E402


def main() -> None:
    latency = float(sys.argv[1]) if len(sys.argv) > 1 else 0.0
    with ScriptedJudge(
        lambda c, a, n: reply("yes", a[:24]), latency_s=latency, keep=False
    ) as judge:
        print(judge.url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
