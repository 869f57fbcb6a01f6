"""What a storm left behind, as the ledger and those who watched tell it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Self

import curve
from fleet import Fleet
from sqlalchemy import select
from storm import Storm
from watch import StallWatch

from tradewind.ledger.tables import draws
from tradewind.run.readings import read_steps

SKIPPED, TWICE = "every prompt is accounted for", "no group is trained twice"
"""Checks of the audit."""


@dataclass(frozen=True)
class Findings:
    """Of a run that has ended, `steps` long."""

    storm: Storm
    watch: StallWatch
    steps: int
    checks: dict[str, int]
    """Violations that the audit finds, by check."""
    violations: tuple[str, ...]
    prompts: tuple[tuple[str, int], ...]
    """State and number of attempts of every prompt that was drawn."""
    trained: list[curve.Trained]
    """Every trained rollout."""
    ages: list[int]
    """Versions between sampling and training of each trained token's rollout, once per value."""
    readings: int
    """Steps that the ledger can show."""
    events: frozenset[str]
    """Kinds of all events."""

    @classmethod
    def of(cls, fleet: Fleet, storm: Storm, watch: StallWatch, steps: int) -> Self:
        """Read it; the fleet may still stand."""
        watch.close()
        report = fleet.ledger.audit_report()
        with fleet.ledger.read() as conn:
            readings = read_steps(conn)
            prompts = conn.execute(select(draws.c.state, draws.c.attempt)).all()
        return cls(
            storm=storm,
            watch=watch,
            steps=steps,
            checks={check.name: len(check.violations) for check in report.checks},
            violations=tuple(map(str, report.violations)),
            prompts=tuple((state, attempt) for state, attempt in prompts),
            trained=curve.rewards(fleet.ledger),
            ages=sorted({age for step in readings for age in step.staleness}),
            readings=len(readings),
            events=frozenset(event.kind for event in fleet.ledger.events(limit=10**6)),
        )

    @property
    def prompts_left(self) -> int:
        """Drawn, and not trained when the run ended."""
        return sum(state != "consumed" for state, _ in self.prompts)

    def figures(self) -> dict[str, object]:
        """For those who compare runs."""
        return {
            **self.storm.figures(),
            "prompts_skipped": self.checks[SKIPPED],
            "prompts_reached": len(self.prompts),
            "prompts_left": self.prompts_left,
            "prompts_tried_again": sum(attempt > 0 for _, attempt in self.prompts),
            "groups_trained_twice": self.checks[TWICE],
            "unexplained_stalls": len(self.watch.unexplained),
            "stalls": [asdict(stall) for stall in self.watch.stalls],
            "longest_stall_s": round(self.watch.longest.seconds, 1),
            "longest_stall": self._longest(),
            "steps": self.steps,
            "rollouts_trained": len(self.trained),
            "reward_shift_detectable": round(curve.detectable(len(self.trained)), 3),
            "staleness_max": max(self.ages),
        }

    def _longest(self) -> dict[str, object]:
        """What is known of the longest time without progress."""
        longest = self.watch.longest
        return {
            "unwatched_s": round(longest.unwatched_s, 1),
            "causes": longest.causes,
            "faults": self.storm.around(longest.began, longest.ended),
        }
