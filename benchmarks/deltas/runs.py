"""RL at several learning rates, from each of which some steps are kept as deltas."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from common.machine import cores
from common.side import Event, run_side
from grpo.plan import Plan
from grpo.questions import prompts


@dataclass(frozen=True)
class Runs:
    """How much of everything."""

    rates: tuple[float, ...]
    steps: int
    kept: tuple[int, ...]
    """Steps whose deltas are written."""
    new_tokens: int
    reward: str

    def record(self, model: Path, folder: Path, limit_s: float) -> list[Event]:
        """Trains at each rate in a process of its own, and keeps the deltas in `folder`."""
        events = []
        for rate in self.rates:
            plan = Plan(
                model=str(model),
                prompts=prompts(self.steps * 4, seed=0),
                reward=self.reward,
                steps=self.steps,
                new_tokens=self.new_tokens,
                learning_rate=rate,
                threads=cores(),
            )
            with tempfile.TemporaryDirectory() as scratch:
                file = Path(scratch) / "plan.json"
                plan.write(file)
                argv = [sys.executable, "-m", "deltas.record", str(file), str(folder)]
                argv += [str(step) for step in self.kept]
                name = f"rate {rate:g}"
                events += run_side(name, argv, limit_s=limit_s, threads=plan.threads)
        return events
