"""Rewards of one group -> credit per rollout. Plain Python; the controller calls it (stop 6)."""

from __future__ import annotations

import math
from collections.abc import Sequence

Reward = float | None


def group_mean(rewards: Sequence[Reward], resolution: float = 0.0) -> list[Reward]:
    """Each reward minus the mean of the non-null rewards; a null gets no credit.

    No division by the standard deviation: it would weigh nearly solved and nearly hopeless
    tasks above the ones in between (Dr. GRPO, arXiv 2503.20783, section 3.1).

    Args:
        rewards: one per rollout of the group, None where the rollout is null.
        resolution: rewards that differ by no more are the same. It is decided on the whole group,
            by its spread: either all of its rollouts have credit, or none has.

    Returns:
        One advantage per rollout, None exactly where the reward is None. The non-null ones sum
        to zero. A group of equal rewards gets exact zeros, whatever rounding the mean suffers.
        The rewards themselves are left as they are.
    """
    known = [reward for reward in rewards if reward is not None]
    assert all(math.isfinite(reward) for reward in known), f"a reward is not finite: {known}"
    if not known:
        return [None] * len(rewards)
    if max(known) - min(known) <= resolution:
        return [None if reward is None else 0.0 for reward in rewards]
    mean = math.fsum(known) / len(known)
    return [None if reward is None else reward - mean for reward in rewards]
