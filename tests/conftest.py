"""Which tests share a process when the suite runs in two (`pytest -n 2 --dist loadgroup`)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
"""On a busy machine an example may take as long as it likes."""

HERE = Path(__file__).parent
SLOWEST = ("vllm", "e2e", "chaos", "clients", "project", "trainer")
"""Folders that begin, in this order: a long test that begins last keeps one core idle."""
WHOLE = ("vllm", "clients")
"""Folders whose files share servers of one session: they stay together."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One group per file, or per folder that shares its servers; long ones first."""
    items.sort(key=_order)
    for item in items:
        folder, file = _place(item)
        item.add_marker(pytest.mark.xdist_group(folder if folder in WHOLE else f"{folder}/{file}"))


def _order(item: pytest.Item) -> int:
    folder, _ = _place(item)
    return SLOWEST.index(folder) if folder in SLOWEST else len(SLOWEST)


def _place(item: pytest.Item) -> tuple[str, str]:
    inside = item.path.relative_to(HERE)
    return inside.parts[0], inside.name
