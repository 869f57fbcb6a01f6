"""Known attacks on the verifiers of a reward, on a few tasks: one that pays spoils all of them."""

from __future__ import annotations

from collections.abc import Sequence

from tradewind.rewards.admission.bench import Bench, fault_in
from tradewind.rewards.admission.options import AdmissionOptions
from tradewind.rewards.attacks.catalogue import known_attacks
from tradewind.rewards.panel import Panel
from tradewind.types.task import Task

ONCE = 1
"""An attack may pay on so many of several tasks: a fixed answer is right now and then."""
SHOWN = 3


def fallen(tasks: Sequence[Task], panel: Panel | None, options: AdmissionOptions) -> str | None:
    """Which known attacks pay on which tasks, as a sentence; None if none does.

    They are made against a verifier, not against a task, so `options.attacked` tasks are enough.
    Attacks that only end by a deadline are left to the verifier's own tests.
    """
    if panel is None or options.attacked == 0:
        return None
    sample = [task for task in tasks if fault_in(task, panel) is None][: options.attacked]
    found: list[str] = []
    for use in dict.fromkeys(config.use for config, _ in panel.signals):
        for attack in known_attacks(use):
            if attack.slow or not sample:
                continue
            paid = []
            for task in sample:
                reward = Bench(task, panel).score(attack.artefacts(task), "attack").reward
                if reward is not None and reward > options.floor:
                    paid.append(task.task_id)
            if len(paid) > min(ONCE, len(sample) - 1):
                found.append(f"{attack.name!r} ({attack.why}) pays on {', '.join(paid)}")
    more = f"; {len(found) - SHOWN} more" if found[SHOWN:] else ""
    return ("; ".join(found[:SHOWN]) + more) or None
