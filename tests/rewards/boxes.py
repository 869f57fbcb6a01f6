"""Whether this machine has the walls that a test needs."""

from __future__ import annotations

import pytest

from tradewind.rewards.sandbox.level import Level
from tradewind.rewards.sandbox.measure import reaches, report


def need(level: Level) -> pytest.MarkDecorator:
    """Skip, with the reason, where `level` is not reached."""
    return pytest.mark.skipif(not reaches(level), reason=f"isolation is {report()}")
