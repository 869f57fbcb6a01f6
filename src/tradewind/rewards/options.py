"""What every signal takes that runs in a process of its own."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tradewind.rewards.sandbox.level import Level
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
        """As a box takes them; libraries may start a thread for each core."""
        return Limits(memory_mb=self.memory_mb, answer_bytes=self.max_bytes, processes=256)


class ReaderOptions(ProcessOptions):
    """Limits of a child whose code is trusted and reads what an agent said."""

    isolation: Literal["L1", "L2", "L3", "L4"] = "L1"
    """The least isolation that will do; the highest up to L3 that the machine reaches is used, L4
    only if it is asked for. Below this one the grader does not start."""

    @property
    def minimum(self) -> Level:
        """`isolation` as a level."""
        return Level[self.isolation]


class BoxOptions(ReaderOptions):
    """Limits of a child that runs what an agent wrote."""

    isolation: Literal["L1", "L2", "L3", "L4"] = "L2"
    """The same, but more."""
    processes: int = Field(default=16, ge=2)
    """Processes and threads at the same time."""
    scratch_mb: int = Field(default=16, ge=1)
    """Room for files that it writes, in MiB; forgotten with the verdict."""
    packages: bool = False
    """Whether the grader's installed packages can be imported, or only the standard library."""

    def limits(self) -> Limits:
        """As a box takes them; CPU time ends what the wall clock would not."""
        return Limits(
            memory_mb=self.memory_mb,
            cpu_s=int(4 * self.deadline_s) + 1,
            processes=self.processes,
            file_mb=self.scratch_mb,
            scratch_mb=self.scratch_mb,
            answer_bytes=self.max_bytes,
        )
