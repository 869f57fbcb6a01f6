"""Which signals make up a reward, as data: the composition and its version."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any

from pydantic import Field, field_validator, model_validator

from tradewind.types.config import Config
from tradewind.types.digest import digest_of

ROUNDING = 1e-9
"""Rewards that differ by no more are the same number."""
JUDGE = "judge"
"""The `use` whose verdicts count only as far as their judge is trusted."""


class Role(StrEnum):
    """What a signal does in the formula; `compose.py` is the formula."""

    GATE = "gate"
    """The reward is 0 unless the value reaches `bar`."""
    WEIGHTED = "weighted"
    """Enters the weighted mean; a negative weight takes off."""
    CAP = "cap"
    """Below `bar`, the reward is at most `most`."""
    PENALTY = "penalty"
    """`weight` times the value is taken off in the end."""
    TRIPWIRE = "tripwire"
    """From `bar` on the whole group is rejected: what was caught is never trained."""
    MONITOR = "monitor"
    """Recorded, never part of the reward."""


class SignalConfig(Config):
    """One `[[grader.signals]]` of a recipe, one `[[signals]]` of a reward file."""

    name: str = ""
    """Source of the scores; unique in its composition. Empty: what `use` is called."""
    use: str = "resultset"
    """A built-in signal, or `path/to/file.py:object` with a `score(task, outcome)` of your own."""
    role: Role = Role.WEIGHTED
    """What it does in the formula."""
    weight: float = 1.0
    """Of a weighted signal (may be negative) or a penalty."""
    bar: float = 1.0
    """From which value a gate opens, a cap is lifted, a tripwire fires."""
    most: float = 0.0
    """What a cap leaves of the reward."""
    resolution: float = Field(default=0.0, ge=0)
    """Values that differ by no more say the same: a group whose rewards differ by no more than
    that brings about teaches nothing."""
    options: dict[str, Any] = Field(default_factory=dict)
    """What the signal itself takes; its own model says which keys there are."""

    @field_validator("weight", "bar", "most")
    @classmethod
    def _finite(cls, value: float) -> float:
        if not abs(value) < 1e6:
            raise ValueError("must be a finite number")
        return value

    @model_validator(mode="before")
    @classmethod
    def _named(cls, values: Any) -> Any:
        if isinstance(values, dict) and not values.get("name"):
            use = str(values.get("use", cls.model_fields["use"].default))
            return {**values, "name": use.rpartition(":")[2]}
        return values

    @model_validator(mode="after")
    def _can_be_told_apart(self) -> SignalConfig:
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", self.name):
            raise ValueError("a signal's name has letters, digits, '_', '-' and '.'")
        return self

    @property
    def judged(self) -> bool:
        """Whether it counts only as far as its judge is trusted."""
        return self.use == JUDGE


class Composition(Config):
    """The whole reward. Data with a version; no code decides what counts."""

    signals: tuple[SignalConfig, ...] = (SignalConfig(),)
    """At least one that is not merely watched."""

    @model_validator(mode="after")
    def _works(self) -> Composition:
        names = [signal.name for signal in self.signals]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two signals are called {twice[0]!r}; give them different names")
        weighted = self.with_role(Role.WEIGHTED)
        if not weighted and not self.with_role(Role.GATE):
            raise ValueError("no signal is weighted or a gate, so nothing would be rewarded")
        if weighted and not any(signal.weight > 0 for signal in weighted):
            raise ValueError("no weighted signal has a weight above 0, so nothing is rewarded")
        return self

    @property
    def version(self) -> str:
        """12 hex digits: other data, other version."""
        return digest_of(self.model_dump(mode="json"), 12)

    @property
    def resolution(self) -> float:
        """How far apart the rewards of a group may lie and yet be the same.

        What the resolutions of the signals come to in the formula, and what rounding may add: the
        same verdicts summed in another order differ in their last digits.
        """
        weighted = self.with_role(Role.WEIGHTED)
        whole = sum(signal.weight for signal in weighted if signal.weight > 0) or 1.0
        soft = sum(abs(signal.weight) * signal.resolution for signal in weighted) / whole
        taken = sum(abs(s.weight) * s.resolution for s in self.with_role(Role.PENALTY))
        return soft + taken + ROUNDING

    def with_role(self, role: Role) -> list[SignalConfig]:
        """The signals of one role, in their order."""
        return [signal for signal in self.signals if signal.role is role]
