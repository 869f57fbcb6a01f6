"""A return: the run's own trainer goes back to the weights of an earlier version."""

from __future__ import annotations

from pydantic import Field

from tradewind.types.record import Record


class ReturnOrder(Record):
    """Somebody wants the trainer back at a version; it heeds that before it trains anything more.

    Example: `ReturnOrder(back_to=4, who="ana", why="the judge was fooled", at=1764486000)`.
    """

    back_to: int = Field(ge=0)
    who: str
    """A user of the machine, or an alarm."""
    why: str
    at: float
    """Unix seconds."""

    @property
    def sentence(self) -> str:
        """Where to, and who says so."""
        return f"the trainer is to go back to version {self.back_to}, {self.who} says: {self.why}"


class Return(ReturnOrder):
    """It was done: `version` follows the newest one in the chain and has the weights of `back_to`.

    Example: `Return(version=10, back_to=4, who="ana", why="the judge was fooled", at=1764486000)`.
    """

    version: int

    @property
    def sentence(self) -> str:
        """What was done, what it took away, and who asked for it."""
        first, last = self.back_to + 1, self.version - 1
        gone = f"version {last} is" if first == last else f"versions {first} to {last} are"
        return (
            f"the trainer went back to version {self.back_to} as version {self.version}, "
            f"{gone} withdrawn; {self.who} says: {self.why}"
        )
