"""What a fleet is made of: its model, and the database of its ledger."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from common import postgres
from database import Served
from fleet import make_model
from sqlalchemy import make_url

from tradewind.http.listening import free_port


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture
def server(kind: str) -> Iterator[Served | None]:
    """A PostgreSQL of its own on loopback, with a new database; None for SQLite."""
    if kind == "sqlite":
        yield None
        return
    if postgres.programs() is None:
        pytest.skip(postgres.MISSING)
    port = str(free_port("127.0.0.1", 0, "database"))
    with postgres.running(listen_addresses="127.0.0.1", port=port) as found:
        here = make_url(postgres.new_database(found.url)).difference_update_query(["host", "port"])
        url = here.set(host="127.0.0.1", port=int(port)).render_as_string()
        yield Served(found, url)
