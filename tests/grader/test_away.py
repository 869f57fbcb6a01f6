"""Judges that are left alone: told once with each change, shown by `trust` and `status`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tradewind.grader.away import AwayJudges
from tradewind.ledger.ledger import Ledger
from tradewind.ledger.trust import Judge
from tradewind.rewards.config import SignalConfig
from tradewind.rewards.judges.breaker import Away
from tradewind.run.trust import judge_lines
from tradewind.types.trust import TrustState

OPEN = Away("it did not answer in time", open_s=5.0, next_s=15.0, tries=0)


@dataclass
class StubJudge:
    now: Away | None = None

    def away(self) -> Away | None:
        return self.now


@pytest.fixture
def ledger(tmp_path: Path):
    with Ledger.open(tmp_path / "ledger.sqlite") as found:
        found.create_run({"seed": 1})
        yield found


def test_each_change_is_told_once(ledger: Ledger) -> None:
    judge = StubJudge()
    judges = [(SignalConfig(name="c", use="judge"), judge)]
    told = AwayJudges(ledger)

    def look(away: Away | None) -> list[str]:
        before = len(ledger.events())
        judge.now = away
        told.look(judges)
        told.look(judges)
        return [event.kind for event in ledger.events()[before:]]

    assert look(None) == []
    assert look(OPEN) == ["judge.away"]
    said = ledger.judges_away()["c"].detail
    time = r"\d\d:\d\d:\d\d UTC"
    pattern = rf"breaker open since {time} \(it did not answer in time\), next try at {time}"
    assert re.fullmatch(pattern, said)
    assert look(Away("it answered 503", open_s=30.0, next_s=40.0, tries=1)) == ["judge.away"]
    assert "it answered 503" in ledger.judges_away()["c"].detail
    assert look(None) == ["judge.back"]
    assert ledger.judges_away() == {}


def test_the_next_grader_takes_back_what_one_that_was_killed_has_said(ledger: Ledger) -> None:
    judge = StubJudge(OPEN)
    judges = [(SignalConfig(name="c", use="judge"), judge)]
    AwayJudges(ledger).look(judges)
    judge.now = None
    AwayJudges(ledger).look(judges)
    assert ledger.judges_away() == {}


def test_trust_says_why_a_judge_is_not_asked() -> None:
    judge = Judge(signal="c", version="1", minimum=TrustState.PROBATION, truth="t", about={})
    said = "breaker open since 12:00:00 UTC (it did not answer in time), next try at 12:00:20 UTC"
    shown = judge_lines(judge, None, said)
    assert said in str(shown[1].renderable)
    assert len(judge_lines(judge, None, None)) == len(shown) - 1
