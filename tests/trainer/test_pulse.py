"""The trainer's place in the ledger survives a database that goes away for a while."""

from __future__ import annotations

import threading
import time

import pytest

from tradewind.ledger.ledger import Ledger
from tradewind.trainer.pulse import Pulse
from tradewind.types import Conflict, LedgerAway, Stalled


class Away(Ledger):
    """A ledger that can be out of reach."""

    away: Exception | None = None
    failed = threading.Event()

    def acquire_trainer(self, *arguments) -> None:
        self._reach()
        super().acquire_trainer(*arguments)

    def beat(self, beat) -> None:
        self._reach()
        super().beat(beat)

    def _reach(self) -> None:
        if self.away is not None:
            self.failed.set()
            raise self.away


@pytest.fixture
def ledger(tmp_path):
    opened = Away.open(tmp_path / "ledger.sqlite")
    opened.failed = threading.Event()
    yield opened
    opened.close()


def until(condition) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize(
    "away",
    [
        LedgerAway("the ledger's database is away"),
        Stalled("another writer of the ledger", owner="another process", seconds=30.0),
    ],
    ids=["database away", "another writer hangs"],
)
def test_place_is_renewed_again_once_the_database_is_back(ledger, away):
    with Pulse(ledger, ttl_s=0.2) as pulse:
        ledger.away = away
        assert ledger.failed.wait(30)
        pulse.doing("step 3")  # a beat that nobody hears is no failure
        ledger.away = None
        renewed = ledger.trainer()[1]
        until(lambda: ledger.trainer()[1] > renewed)
        until(lambda: [beat.doing for beat in ledger.beats()] == ["step 3"])
        pulse.check()


def test_trainer_that_lost_its_place_meanwhile_says_so(ledger, tmp_path):
    with pytest.raises(Conflict), Pulse(ledger, ttl_s=0.2) as pulse:
        ledger.away = LedgerAway("the ledger's database is away")
        assert ledger.failed.wait(30)
        other = Ledger.open(tmp_path / "ledger.sqlite")
        until(lambda: other.trainer()[1] < time.time())
        other.acquire_trainer("another", time.time(), 60.0)
        other.close()
        ledger.away = None
        until(lambda: pulse._lost is not None)
        pulse.check()
