"""`tradewind tenants` against a real controller."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from typer.testing import CliRunner

from tradewind.controller.config import ControllerConfig
from tradewind.controller.controller import Controller
from tradewind.controller.keys import Keys
from tradewind.controller.main import serve
from tradewind.http.listening import listen
from tradewind.ledger.keys import digest
from tradewind.ledger.ledger import Ledger
from tradewind.run.cli import app
from tradewind.types import UserError


@pytest.fixture
def controller(tmp_path, monkeypatch):
    """A ledger and the URL of its controller."""
    monkeypatch.setenv("TRADEWIND_ADMIN_KEY", "admin-key")
    ledger = Ledger.open(tmp_path / "ledger.sqlite")
    ledger.create_run({"seed": 1})
    listener = listen("127.0.0.1", 0)
    made, ready = [], threading.Event()

    async def live() -> None:
        made.extend([Controller(ControllerConfig(), ledger), asyncio.get_running_loop()])
        ready.set()
        await serve(made[0], Keys(worker="w", pool="p", admin="admin-key"), listener)

    thread = threading.Thread(target=lambda: asyncio.run(live()))
    thread.start()
    assert ready.wait(30)
    yield ledger, f"http://127.0.0.1:{listener.getsockname()[1]}"
    made[1].call_soon_threadsafe(made[0].stop)
    thread.join(30)
    ledger.close()


def tenants(url: str, *words: str):
    return CliRunner().invoke(app, ["tenants", *words, "--controller", url])


def test_a_tenant_is_added_listed_rotated_and_revoked(controller):
    ledger, url = controller
    added = tenants(url, "add", "acme", "--max-open", "3", "--kind", "refunds")
    assert added.exit_code == 0, added
    tenant = ledger.tenant_of_key(digest(added.stdout.strip()))
    assert (tenant.name, tenant.max_open, tenant.kinds) == ("acme", 3, ("refunds",))
    (listed,) = json.loads(tenants(url, "list", "--json").stdout)
    assert listed["tenant"]["name"] == "acme" and listed["open"] == 0
    assert "refunds" in tenants(url, "list").stdout
    rotated = tenants(url, "rotate", "acme").stdout.strip()
    assert ledger.tenant_of_key(digest(added.stdout.strip())) is None
    assert ledger.tenant_of_key(digest(rotated)) == tenant
    assert tenants(url, "revoke", "acme").exit_code == 0
    assert ledger.tenant_of_key(digest(rotated)) is None


@pytest.mark.parametrize(
    "words,key,says",
    [
        (("revoke", "nobody"), "admin-key", "no tenant 'nobody'"),
        (("add", "Acme Inc."), "admin-key", "name: "),
        (("list",), "wrong", "admin key is wrong"),
        (("list",), None, "TRADEWIND_ADMIN_KEY"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(controller, monkeypatch, words, key, says):
    if key is None:
        monkeypatch.delenv("TRADEWIND_ADMIN_KEY")
    else:
        monkeypatch.setenv("TRADEWIND_ADMIN_KEY", key)
    refused = tenants(controller[1], *words).exception
    assert isinstance(refused, UserError) and says in str(refused)


def test_a_controller_that_is_away_is_a_sentence(monkeypatch):
    monkeypatch.setenv("TRADEWIND_ADMIN_KEY", "admin-key")
    refused = tenants("http://127.0.0.1:9", "list").exception
    assert isinstance(refused, UserError) and "cannot be reached" in str(refused)
