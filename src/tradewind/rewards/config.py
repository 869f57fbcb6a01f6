"""Configuration of a verifier."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from tradewind.types.config import Config


class RewardConfig(Config):
    """Which verifier, and what it may use."""

    reward: str = "resultset"
    """`resultset`, or `path/to/file.py:object` with a `score(task, outcome)` of your own."""
    database: Path | None = None
    """SQLite file on which `resultset` runs candidate and reference; read-only."""
    deadline_s: float = Field(default=10.0, gt=0)
    """Wall-clock limit of one verification, in seconds; then its process is killed."""
    max_steps: int = Field(default=50_000_000, gt=0)
    """Limit of one query in instructions of SQLite's virtual machine: the same on every machine,
    so that a verdict of "too slow" does not depend on load."""
    max_rows: int = Field(default=1000, gt=0)
    """A query that returns more rows is wrong; a reference that does is refused."""
    max_bytes: int = Field(default=4_000_000, gt=0)
    """The same for the bytes of its result."""
    memory_mb: int = Field(default=1024, ge=128)
    """Address space of the child process."""
