"""What a check is. Those of a group are in a module each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tradewind.envs.check.subject import Failed, Subject
from tradewind.types.assignment import Progress

Run = Callable[[Subject], Awaitable[None]]


@dataclass(frozen=True)
class Check:
    """One line of the table."""

    name: str
    group: str
    claim: str
    """What holds if it passes."""
    run: Run
    needs_play: bool
    """Whether it says nothing about a server on which no rollout can be played."""


def check(checks: list[Check], group: str, *, needs_play: bool = True) -> Callable[[Run], Run]:
    """Add a function to `checks`; the check's name is the function's, its claim the docstring."""

    def register(run: Run) -> Run:
        claim = " ".join((run.__doc__ or "").split())
        checks.append(Check(run.__name__.replace("_", "-"), group, claim, run, needs_play))
        return run

    return register


def expect_graded(progress: Progress, what: str, expected: str) -> None:
    """Raise `Failed` unless the rollout ended with an outcome that is graded."""
    outcome = progress.outcome
    if outcome is None or not outcome.status.gradable:
        status = progress.state.value if outcome is None else outcome.status.value
        raise Failed(
            f"{what}, and it says {status}; a null is for what no policy can cause, say {expected}"
        )
