"""The soft overlong penalty."""

from __future__ import annotations

from pydantic import Field, model_validator

from tradewind.rewards.behaviour.count import count_effort
from tradewind.rewards.behaviour.counted import Counted
from tradewind.rewards.signal import Verdict
from tradewind.types.config import Config
from tradewind.types.episode import Episode


class LengthOptions(Config):
    """Where the forbidden zone lies, in sampled tokens of the whole rollout."""

    limit: int = Field(default=8192, ge=1)
    """From here on the value is 1."""
    zone: int = Field(default=2048, ge=1)
    """So many tokens before the limit it begins to rise from 0."""

    @model_validator(mode="after")
    def _zone_fits(self) -> LengthOptions:
        if self.zone > self.limit:
            raise ValueError("zone must not be greater than limit")
        return self


class Length(Counted):
    """Value: (tokens - (limit - zone)) / zone, clipped to [0, 1].

    The negative of DAPO's soft overlong punishment (arXiv 2503.14476, equation 13), for role
    `penalty`.
    """

    takes = LengthOptions

    def __init__(self, options: LengthOptions) -> None:
        self._limit, self._zone = options.limit, options.zone

    def score(self, episode: Episode) -> Verdict:
        """How far into the zone."""
        effort = count_effort(episode.turns)
        tokens = effort.thinking + effort.calls + effort.message
        value = min(1.0, max(0.0, (tokens - (self._limit - self._zone)) / self._zone))
        return Verdict(value=value, cause=f"{tokens} tokens", evidence={"tokens": tokens})
