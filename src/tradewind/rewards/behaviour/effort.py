"""What an answer cost in work: the effort penalty, over the captured tokens.

    C(x) = ((1 + k x)^(1 - q) - 1) / (k (1 - q))        x = a weighted sum of six counts

    q = 0     C = x                  every token costs the same
    q -> 1    C = log(1 + k x) / k   the first tokens cost most, the thousandth little

Increasing and concave: on an easy task each step saved shows, on a hard one patience is cheap. The
form is that of the Composer technical report, section 4.2; its k, q and weights are not public.
Since results of parallel calls come in one turn and serial ones in several, parallel is cheaper.
"""

from __future__ import annotations

import math

from pydantic import Field

from tradewind.rewards.behaviour.count import Effort, count_effort
from tradewind.rewards.behaviour.counted import Counted
from tradewind.rewards.signal import Verdict
from tradewind.types.config import Config
from tradewind.types.episode import Episode

PARTS = ("thinking", "calls", "message", "outputs", "call_count", "turn_count")
"""The six of them, by their names in `Effort` and in the options."""


class EffortOptions(Config):
    """Weights of the six parts of x, and the shape of C."""

    k: float = Field(default=1.0, gt=0, lt=1e6)
    """How soon the curve bends: at x = 1 / k."""
    q: float = Field(default=0.5, ge=0, le=10)
    """How strongly it bends; 0 is a straight line."""
    thinking: float = Field(default=0.001, ge=0)
    """Per sampled token between the family's thinking marks."""
    calls: float = Field(default=0.001, ge=0)
    """Per sampled token of a tool call."""
    message: float = Field(default=0.001, ge=0)
    """Per sampled token of anything else that is said."""
    outputs: float = Field(default=0.0002, ge=0)
    """Per prompt token that came back from tools and the environment."""
    call_count: float = Field(default=0.02, ge=0)
    """Per tool call."""
    turn_count: float = Field(default=0.1, ge=0)
    """Per call of the model; siblings of one call count once."""


class WorkDone(Counted):
    """Meant for role `penalty`: `weight` times C(x) is taken off the reward."""

    takes = EffortOptions

    def __init__(self, options: EffortOptions) -> None:
        self._options = options

    def score(self, episode: Episode) -> Verdict:
        """C(x); the evidence holds the six parts, so that each can be charted apart."""
        effort = count_effort(episode.turns)
        x = weigh(effort, self._options)
        value = cost(x, self._options.k, self._options.q)
        return Verdict(
            value=value,
            cause=f"effort {x:.3f}: {effort}",
            evidence={"x": x, **effort.model_dump()},
        )


def cost(x: float, k: float, q: float) -> float:
    """C(x), for x >= 0, k > 0, q >= 0; raises `ValueError` outside of these.

    Written with `log1p` and `expm1`, so that both limits are reached without a division by a
    difference of nearly equal numbers: with L = log(1 + k x) and y = (1 - q) L,
    C = (L / k) * (e^y - 1) / y.
    """
    if not (x >= 0 and k > 0 and q >= 0 and math.isfinite(x)):
        raise ValueError(f"C(x) needs x >= 0, k > 0, q >= 0; got x={x}, k={k}, q={q}")
    bent = math.log1p(k * x)
    y = (1.0 - q) * bent
    return bent / k * (math.expm1(y) / y if y else 1.0)


def weigh(effort: Effort, weights: EffortOptions) -> float:
    """x: the six counts, each times its weight."""
    return math.fsum(getattr(weights, part) * getattr(effort, part) for part in PARTS)
