"""Which tests share a process when the suite runs in several (`pytest -n 2`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
"""On a busy machine an example may take as long as it likes."""

HERE = Path(__file__).parent
SLOWEST = ("vllm", "e2e", "chaos", "clients", "project", "trainer")
"""Folders that begin, in this order: a long test that begins last keeps one core idle."""
WHOLE = ("vllm", "clients")
"""Folders whose files share servers of one session: they stay together."""


class Together(LoadScopeScheduling):
    """One unit of work per file, or per folder that shares its servers, in the order of the items.

    Not xdist's own groups: they rename items, which pytest 9.2 ignores without a word.
    """

    def _split_scope(self, nodeid: str) -> str:
        folder, file = _place(nodeid.partition("::")[0].removeprefix("tests/"))
        return folder if folder in WHOLE else f"{folder}/{file}"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Together:
    """How items are shared out when there are several processes."""
    return Together(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long ones first."""
    items.sort(key=_order)


def _order(item: pytest.Item) -> int:
    folder, _ = _place(item.path.relative_to(HERE).as_posix())
    return SLOWEST.index(folder) if folder in SLOWEST else len(SLOWEST)


def _place(path: str) -> tuple[str, str]:
    folder, _, file = path.partition("/")
    return folder, file
