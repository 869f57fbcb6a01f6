"""Why a judge gave no verdict. Each becomes a null with this cause, never a zero."""

from __future__ import annotations

from enum import StrEnum


class FailureKind(StrEnum):
    """The first word of the cause, so that nulls can be counted by it."""

    TIMEOUT = "judge_timeout"
    BUSY = "judge_busy"
    """No call could begin before the deadline."""
    AWAY = "judge_away"
    """Not asked: it has answered nobody for some time (`judges/breaker.py`)."""
    UNREACHABLE = "judge_unreachable"
    OVERLOADED = "judge_overloaded"
    """429 or 5xx to the last attempt."""
    REFUSED = "judge_refused"
    """Another 4xx: the request, key or model is wrong; asking again would not help."""
    MALFORMED = "judge_malformed"
    """Not a chat completion."""
    INVALID = "judge_invalid"
    """A reply that is no verdict, and a second one after a reminder."""
    BUDGET = "judge_budget"

    @property
    def passing(self) -> bool:
        """Whether the same question may be answered a little later, with nothing changed."""
        return self in _PASSING

    @property
    def alarming(self) -> bool:
        """Whether it will not pass by itself: somebody has to be told."""
        return self in (FailureKind.BUDGET, FailureKind.REFUSED)


_PASSING = (
    FailureKind.TIMEOUT,
    FailureKind.BUSY,
    FailureKind.AWAY,
    FailureKind.UNREACHABLE,
    FailureKind.OVERLOADED,
    FailureKind.MALFORMED,
)
"""Not a reply that is no verdict: the same prompt at temperature 0 gives it again."""

NULL_CLASS = "null_class"
"""Key of a null's evidence that holds its kind of failure."""
SPARED_S = "spared_s"
"""Key of a null's evidence: seconds that a call would have been waited for, had one been made."""


class JudgeFailed(Exception):
    """A call that gave no usable reply."""

    def __init__(self, kind: FailureKind, why: str) -> None:
        self.kind, self.why = kind, why
        super().__init__(f"{kind}: {why}")


class TryAgain(Exception):
    """A failure that another attempt may not meet; it becomes `failed` after the last one."""

    def __init__(self, kind: FailureKind, why: str, retry_after_s: float = 0.0) -> None:
        self.failed, self.retry_after_s = JudgeFailed(kind, why), retry_after_s
        super().__init__(why)
