"""Whether this machine has the walls that a test needs."""

from __future__ import annotations

import pytest

from tradewind.rewards.sandbox.level import Level
from tradewind.rewards.sandbox.measure import measure


def need(level: Level) -> pytest.MarkDecorator:
    """Skip, with the reason, where `level` is not reached."""
    measured = measure()
    return pytest.mark.skipif(measured.level < level, reason=f"isolation is {measured}")
