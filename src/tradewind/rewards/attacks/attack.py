"""One known way to be paid without doing the work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tradewind.types.record import Json
from tradewind.types.task import Task


@dataclass(frozen=True)
class Attack:
    """It has passed if a verifier lets it reach the bar on a task it does not solve.

    Example: `Attack("exit", "python", artefacts, "leaves before the tests, with exit status 0")`.
    """

    name: str
    """Unique among those of one `use`."""
    use: str
    """The verifier it is made against, as `[[grader.signals]] use` names it."""
    artefacts: Callable[[Task], Json]
    """What the agent would report for a task."""
    why: str
    """What it hopes for, in words."""
    slow: bool = False
    """Whether it runs until a deadline ends it, twice."""
