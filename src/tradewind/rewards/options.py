"""What every signal takes that runs in a process of its own."""

from __future__ import annotations

from pydantic import Field

from tradewind.rewards.sandbox.limits import Limits
from tradewind.types.config import Config


class ProcessOptions(Config):
    """Limits of the child."""

    deadline_s: float = Field(default=10.0, gt=0)
    """Wall-clock limit of one verdict, in seconds; then its process is killed."""
    memory_mb: int = Field(default=1024, ge=128)
    """Address space of the child."""
    max_bytes: int = Field(default=4_000_000, gt=0)
    """The longest answer that is read from it."""

    def limits(self) -> Limits:
        """As a box takes them."""
        return Limits(memory_mb=self.memory_mb, answer_bytes=self.max_bytes)
