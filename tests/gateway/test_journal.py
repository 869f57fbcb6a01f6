"""Writes that wait together are one transaction; each still succeeds or fails by itself."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from tradewind.gateway.journal import Journal
from tradewind.ledger.ledger import Ledger
from tradewind.types import Event


def event(kind: str) -> Event:
    return Event(at=time.time(), process="gateway", kind=kind)


@pytest.fixture
def ledger(tmp_path):
    opened = Ledger.open(tmp_path / "ledger.sqlite")
    yield opened
    opened.close()


def test_one_bad_write_leaves_those_beside_it_alone(ledger):
    gate = threading.Event()

    def bad() -> None:
        ledger.event(event("bad"))
        with ledger.write():
            ledger.event(event("bad too"))
            raise ValueError("no")

    async def play() -> list[object]:
        journal = Journal(ledger)
        first = asyncio.create_task(journal.write(gate.wait))  # holds the thread
        await asyncio.sleep(0)
        rest = [
            asyncio.create_task(journal.write(ledger.event, event("a"))),
            asyncio.create_task(journal.write(bad)),
            asyncio.create_task(journal.write(ledger.event, event("b"))),
        ]
        await asyncio.sleep(0)
        journal.later(ledger.event, event("c"))
        gate.set()
        found = await asyncio.gather(first, *rest, return_exceptions=True)
        await journal.close()
        return found

    _, one, two, three = asyncio.run(play())
    assert (one, three) == (None, None)
    assert isinstance(two, ValueError)
    kinds = [e.kind for e in ledger.events()]
    assert kinds == ["a", "bad", "b", "c"], "a write is a call of `write`, not of the journal"


def test_writes_keep_their_order(ledger):
    async def play() -> None:
        journal = Journal(ledger)
        names = [str(n) for n in range(200)]
        await asyncio.gather(*(journal.write(ledger.event, event(name)) for name in names))
        await journal.close()

    asyncio.run(play())
    assert [e.kind for e in ledger.events()] == [str(n) for n in range(200)]


def test_transaction_that_cannot_be_committed_is_told_to_all(ledger, monkeypatch):
    gate = threading.Event()

    async def play() -> list[object]:
        journal = Journal(ledger)
        first = asyncio.create_task(journal.write(gate.wait))
        await asyncio.sleep(0)
        rest = [asyncio.create_task(journal.write(ledger.event, event(n))) for n in "ab"]
        await asyncio.sleep(0)
        monkeypatch.setattr(ledger, "together", broken)
        gate.set()
        found = await asyncio.gather(first, *rest, return_exceptions=True)
        await journal.close()
        return found[1:]

    def broken():
        raise OSError("disk full")

    assert [str(error) for error in asyncio.run(play())] == ["disk full"] * 2
    assert ledger.events() == []
