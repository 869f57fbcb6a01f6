"""Who waits for what, and who can end it (promise P1). Pure functions over `Facts`."""

from __future__ import annotations

from collections.abc import Iterable

from tradewind.controller.config import ControllerConfig
from tradewind.controller.facts import Facts
from tradewind.types.record import Record
from tradewind.types.weights import PoolReport

PAUSE_ENDS = "a person to look and run `tradewind trust resume RUN`"
"""What ends a pause."""


class Wait(Record):
    """Example: `Wait(process="trainer", waiting_for="3 closed groups", because="12 rollouts run at
    worker-1, 2 wait for the grader", owner="worker-1")`.
    """

    process: str
    waiting_for: str
    because: str
    owner: str
    """The process whose turn it is."""

    def __str__(self) -> str:
        return f"{self.process} waits for {self.waiting_for}: {self.because} (owner: {self.owner})"


def waits(facts: Facts, config: ControllerConfig) -> list[Wait]:
    """Every wait there is a reason for; empty if everybody has work or nothing is to be done."""
    found = []
    if facts.paused is not None:
        because = facts.paused.sentence
        found.append(Wait(process="training", waiting_for=PAUSE_ENDS, because=because, owner="you"))
    missing = config.groups_per_step - facts.closed
    if facts.steps_to_come and missing > 0:
        because, owner = _rollouts(facts, config)
        found.append(
            Wait(
                process="trainer",
                waiting_for=f"{_n(missing, 'closed group')}",
                because=because,
                owner=owner,
            )
        )
    if facts.evaluating:
        because, owner = _rollouts(facts, config)
        open_groups = facts.counts.eval_groups["open"]
        found.append(
            Wait(
                process="evaluation",
                waiting_for=_n(open_groups, "answer"),
                because=because,
                owner=owner,
            )
        )
    if facts.steps_to_come and missing <= 0:
        doing, owner = _trainer(facts)
        found.append(
            Wait(
                process="workers",
                waiting_for="room for new groups",
                because=f"{_n(facts.closed, 'group')} closed, {doing}",
                owner=owner,
            )
        )
    return found


def _rollouts(facts: Facts, config: ControllerConfig) -> tuple[str, str]:
    """Where the rollouts are, and whose turn it is: the first link of the chain that is stuck."""
    counts = facts.counts.rollouts
    waiting, running = counts.get("waiting", 0), counts.get("running", 0)
    ungraded = counts.get("finished", 0)
    parts = [
        f"{_n(number, 'rollout')} run{'s' if number == 1 else ''} at {worker}"
        for worker, number in facts.counts.running_at.items()
    ]
    if ungraded:
        parts.append(f"{ungraded} wait{'s' if ungraded == 1 else ''} for the grader")
    if waiting:
        parts.append(f"{waiting} wait{'s' if waiting == 1 else ''} for a worker")
    pools = _pools(facts, config)
    if pools is not None:
        return "; ".join([*parts, pools]), "pool"
    if running:
        return ", ".join(parts), _busiest(facts)
    if ungraded:
        return ", ".join(parts), "grader"
    if waiting:
        return f"{', '.join(parts)}; {_workers(facts)}", "worker"
    if facts.aside:
        said = (
            f"no rollout is open, {_n(facts.aside, 'task')} set aside (tradewind rewards restore)"
        )
        return said, "operator"
    return "no rollout is open", "controller"


def _pools(facts: Facts, config: ControllerConfig) -> str | None:
    """Why no pool can answer, or None if one can."""
    serving = facts.serving(config)
    if not facts.pools:
        return "no pool has reported yet"
    if not serving:
        last = max(facts.pools, key=lambda pool: pool.at)
        return f"no pool serves; {last.pool} last reported {facts.now - last.at:.0f} s ago"
    wanted = set(facts.counts.evals_waiting_for) - {pool.version for pool in serving}
    if wanted:
        versions = ", ".join(f"{pool.pool} {pool.version}" for pool in serving)
        asked = f"the evaluation asks for version {min(wanted)}, pools serve: {versions}"
        return "; ".join([asked, *_refusals(serving)])
    if facts.steps_to_come and facts.stale_pools(config):
        pool = max(serving, key=lambda p: p.version)
        why = f" ({pool.detail})" if pool.detail else ""
        behind = f"{pool.pool} serves version {pool.version}, newest is {facts.counts.version}{why}"
        return "; ".join([behind, *_refusals(serving)])
    return None


def _refusals(serving: Iterable[PoolReport]) -> list[str]:
    """Why pools did not take what came."""
    return [f"{p.pool} refuses: {p.quarantined[-1].reason}" for p in serving if p.quarantined]


def _workers(facts: Facts) -> str:
    if not facts.workers:
        return "no worker has asked for work yet"
    name, at = max(facts.workers.items(), key=lambda item: item[1])
    return f"{name} last asked for work {facts.now - at:.0f} s ago"


def _trainer(facts: Facts) -> tuple[str, str]:
    for beat in facts.beats:
        if beat.process == "trainer":
            return (
                f"trainer: {beat.doing}, last heard of {facts.now - beat.at:.0f} s ago",
                "trainer",
            )
    return "no trainer has reported yet", "trainer"


def _busiest(facts: Facts) -> str:
    return max(facts.counts.running_at.items(), key=lambda item: item[1])[0]


def _n(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
