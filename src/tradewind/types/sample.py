"""A sample: one branch of one rollout as the trainer reads it."""

from __future__ import annotations

from tradewind.types.ids import GroupId, RolloutId
from tradewind.types.record import Record


class Sample(Record):
    """Token streams of equal length T: `ids`, `mask`, `logprobs`, `versions`.

    Two turns, the second extends the first; 1 marks what the policy sampled::

        ids       <user> hi <asst> hello <end> <user> more <asst> sure <end>
        mask         0    0    0      1     1     0     0     0     1     1
    """

    group_id: GroupId
    rollout_id: RolloutId
    ids: tuple[int, ...]
    mask: tuple[bool, ...]
    """True where the policy sampled the id, and it has to be trained."""
    logprobs: tuple[float, ...]
    """Behaviour log-probability of each sampled id; 0.0 where mask is False."""
    versions: tuple[int, ...]
    """Weight version that decoded each sampled id; -1 where mask is False."""
    advantage: float
    """Credit of every sampled token of this sample."""
    weight: float
    """1 / number of samples of the rollout, so that forking earns nothing."""
    temperature: float = 1.0
