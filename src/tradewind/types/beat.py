"""A heartbeat: what a process does and, if it waits, for what and for whom (promise P1)."""

from __future__ import annotations

from tradewind.types.record import Record


class Beat(Record):
    """Written by every process at least every few seconds; `tradewind status` prints them.

    Example: `Beat(process="trainer", doing="step 7", waiting_for="2 more closed groups",
    owner="grader", since=1764486000.0, at=1764486012.5)`.
    """

    process: str
    doing: str
    waiting_for: str | None = None
    """None while it works."""
    owner: str | None = None
    """The process that can end the wait."""
    since: float
    """Unix seconds at which the current work or wait began."""
    at: float
    """Unix seconds of this beat."""


class Event(Record):
    """Something that a person may ask about later; append-only."""

    at: float
    process: str
    kind: str
    """`<noun>.<verb>`, for example `group.rejected`."""
    subject: str | None = None
    """Id of the group, rollout, version or pool concerned."""
    detail: str = ""
