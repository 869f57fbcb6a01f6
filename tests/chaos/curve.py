"""Whether the storm changed what was trained: rewards compared with what the policy would earn.

The policy hardly moves (lr), so the reward of each trained rollout is a coin whose weight is known
exactly: the probability that the model's first token begins an ASCII text, summed over the tokens
that do. `excess` is a z-test of the sum of all trained rewards against the sum of these weights.
"""

from __future__ import annotations

import math
import random
from pathlib import Path

from sqlalchemy import select
from warm import apply

from tradewind.ledger.ledger import Ledger
from tradewind.ledger.tables import consumption, credits, groups, rollouts

Z_LIMIT = 3.9
"""Two-sided: a sound run fails with probability 1e-4."""


def rewards(ledger: Ledger) -> list[tuple[int, str, float]]:
    """Step, task and reward of every trained rollout, in the order of steps."""
    query = (
        select(consumption.c.step, groups.c.task_id, credits.c.reward)
        .join(groups, groups.c.group_id == consumption.c.group_id)
        .join(rollouts, rollouts.c.group_id == groups.c.group_id)
        .join(credits, credits.c.rollout_id == rollouts.c.rollout_id)
        .where(credits.c.reward.is_not(None))
        .order_by(consumption.c.step, rollouts.c.rollout_id)
    )
    with ledger.read() as conn:
        return [tuple(row) for row in conn.execute(query)]


def excess(trained: list[tuple[int, str, float]], chance: dict[str, float]) -> float:
    """Standard deviations by which the trained rewards exceed what the policy earns."""
    surplus = sum(reward - chance[task] for _, task, reward in trained)
    variance = sum(chance[task] * (1 - chance[task]) for _, task, _ in trained)
    return surplus / math.sqrt(variance)


def detectable(n: int, chance: float = 0.5, power: float = 0.9) -> float:
    """The smallest shift of the mean reward that `n` rollouts show with this power."""
    beyond = {0.9: 1.2816}[power]
    return (Z_LIMIT + beyond) * math.sqrt(chance * (1 - chance) / n)


def windows(trained: list[tuple[int, str, float]], steps: int) -> list[float]:
    """Mean reward of every `steps` steps, the last ones that fill no window left out."""
    found: dict[int, list[float]] = {}
    for step, _, reward in trained:
        found.setdefault(step // steps, []).append(reward)
    whole = (max(step for step, _, _ in trained) + 1) // steps
    return [sum(found[n]) / len(found[n]) for n in range(whole)]


def same_curve(one: list[float], other: list[float], draws: int = 20_000) -> float:
    """Probability of a mean difference at least as large if the two curves are of one distribution.

    A sign-flip test over windows: if neither run knows of the storm, each window's difference is as
    likely to be positive as negative (R. A. Fisher, The Design of Experiments, 1935, section 21).
    """
    differences = [a - b for a, b in zip(one, other, strict=False)]
    observed, draw = abs(sum(differences)), random.Random(0)
    beyond = sum(
        abs(sum(d if draw.random() < 0.5 else -d for d in differences)) >= observed - 1e-12
        for _ in range(draws)
    )
    return (beyond + 1) / (draws + 1)


def chances(model: Path, questions: dict[str, str]) -> dict[str, float]:
    """Per task: the probability of a first token with which an ASCII text begins."""
    return apply(Path(__file__).with_name("first_token.py"), "chances", model, questions)
