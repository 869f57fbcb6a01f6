"""Which criterion a signal is about."""

from __future__ import annotations

from pathlib import Path

from tradewind.types.config import Config


class CriterionOptions(Config):
    """Which criterion of which file."""

    criteria: Path = Path("criteria.toml")
    """The file (docs/rewards.md, "Criteria and judges")."""
    criterion: str = ""
    """Its id; may be left out if the file has only one."""
