"""The form of the last answer."""

from __future__ import annotations

import re

from pydantic import field_validator

from tradewind.rewards.behaviour.counted import Counted
from tradewind.rewards.pattern import checked_pattern
from tradewind.rewards.signal import Verdict
from tradewind.rewards.trajectory import trajectory
from tradewind.types.config import Config
from tradewind.types.episode import Episode


class FormatOptions(Config):
    """The wanted form."""

    pattern: str = r"\S"
    """A regular expression, searched in the last answer; write `\\A...\\Z` to mean all of it."""

    _compiles = field_validator("pattern")(checked_pattern)


class Format(Counted):
    """Value: 1 if the last answer matches, else 0; an episode without answer has 0."""

    takes = FormatOptions

    def __init__(self, options: FormatOptions) -> None:
        self._pattern = re.compile(options.pattern, re.DOTALL)

    def score(self, episode: Episode) -> Verdict:
        """Match or no match."""
        final = trajectory(episode).final
        found = self._pattern.search(final)
        return Verdict(
            value=1.0 if found else 0.0,
            cause=None if found else f"the last answer does not match {self._pattern.pattern!r}",
            evidence={"characters": len(final)},
        )
