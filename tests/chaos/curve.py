"""Whether the storm changed what was trained: rewards compared with what the policy would earn.

The reward of each trained rollout is a coin whose weight is known exactly: the probability that the
first token of the version that sampled it begins an ASCII text, summed over the tokens that do.

    excess      rewards against chances, rollout by rollout: what reaches the trainer is what its
                versions say, whatever they have learned
    same        what runs have learned, run by run: what is made of it is what an undisturbed run
                makes of it
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import func, select
from warm import apply

from tradewind.ledger.ledger import Ledger
from tradewind.ledger.tables import consumption, credits, groups, rollouts, turns
from tradewind.types import TurnState

Z_LIMIT = 3.9
"""Two-sided: a sound run fails with probability 1e-4."""


class Trained(NamedTuple):
    """A trained rollout."""

    step: int
    task: str
    version: int
    """That sampled its first token."""
    reward: float


class Run(NamedTuple):
    """A run that has ended."""

    earned: list[tuple[float, float]]
    """Reward and chance of every trained rollout."""
    means: list[float]
    """The mean chance over all tasks, by version."""


def rewards(ledger: Ledger) -> list[Trained]:
    """Every trained rollout, in the order of steps."""
    answered = (
        select(turns.c.rollout_id, func.min(turns.c.oldest_version).label("version"))
        .where(turns.c.state == TurnState.DONE)
        .group_by(turns.c.rollout_id)
        .subquery()
    )
    query = (
        select(consumption.c.step, groups.c.task_id, answered.c.version, credits.c.reward)
        .join(groups, groups.c.group_id == consumption.c.group_id)
        .join(rollouts, rollouts.c.group_id == groups.c.group_id)
        .join(credits, credits.c.rollout_id == rollouts.c.rollout_id)
        .join(answered, answered.c.rollout_id == rollouts.c.rollout_id)
        .where(credits.c.reward.is_not(None))
        .order_by(consumption.c.step, rollouts.c.rollout_id)
    )
    with ledger.read() as conn:
        return [Trained(*row) for row in conn.execute(query)]


def excess(earned: Iterable[tuple[float, float]]) -> float:
    """Standard deviations by which rewards exceed chances; a pair for each trained rollout.

    The luck of a run decides which versions it has, so its rewards depend on each other. Given the
    version that sampled it, a reward minus its chance has mean 0 whatever came before: the sums are
    a martingale, and normal after some hundred rollouts (P. Hall, C. C. Heyde, Martingale Limit
    Theory, 1980, section 3.2).

    Notices what depends on the reward: wrong answers that are lost and sampled again, rewards given
    to the wrong rollout of another chance, rollouts of a version that is not the one it says. Does
    not notice what is made of them: wrong gradients give versions that earn what they should.
    """
    pairs = list(earned)
    surplus = sum(reward - chance for reward, chance in pairs)
    return surplus / math.sqrt(sum(chance * (1 - chance) for _, chance in pairs))


def detectable(n: int, chance: float = 0.5, power: float = 0.9) -> float:
    """The smallest shift of the mean reward that `n` rollouts show with this power."""
    beyond = {0.9: 1.2816}[power]
    return (Z_LIMIT + beyond) * math.sqrt(chance * (1 - chance) / n)


def same(one: Sequence[float], other: Sequence[float]) -> float:
    """Probability of means at least as far apart if all values are of one distribution.

    An exact permutation test (R. A. Fisher, The Design of Experiments, 1935, section 21) over runs,
    a value each: steps of one run share its luck, runs share nothing. With m and n runs it is never
    below 1 / C(m + n, m).

    Notices what makes a run learn much faster or slower, whatever its rewards: a third of the
    learning rate, say. It is coarse: 4 runs beside 24 fail at 0.001 with a power of 0.9 if they are
    2.5 standard deviations of a run away. Does not notice rewards that are lost: see `excess`.
    """
    values, m = (*one, *other), len(one)
    total = sum(values)

    def apart(chosen: Iterable[float]) -> float:
        return abs(sum(chosen) / m - total / len(values))  # grows as the difference of the means

    observed = apart(one) - 1e-12
    drawn = [apart(chosen) >= observed for chosen in combinations(values, m)]
    return sum(drawn) / len(drawn)


def chances(model: Path, questions: dict[str, str]) -> dict[str, float]:
    """Per task: the probability of a first token with which an ASCII text begins."""
    return apply(Path(__file__).with_name("first_token.py"), "chances", model, questions)


def along(
    model: Path, questions: dict[str, str], bucket: str, versions: int
) -> list[dict[str, float]]:
    """The same of every version that a run published, the base first."""
    script = Path(__file__).with_name("first_token.py")
    return apply(script, "along", model, questions, bucket, "chaos", versions)
