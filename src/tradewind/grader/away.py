"""Tells of judges that are left alone because they do not answer, and of their return."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime

from tradewind.ledger.ledger import Ledger
from tradewind.ledger.trust import JUDGE_AWAY, JUDGE_BACK
from tradewind.rewards.config import SignalConfig
from tradewind.rewards.judges.breaker import Away
from tradewind.rewards.judges.signal import JudgeSignal
from tradewind.types.beat import Event


class AwayJudges:
    """An event with each change: left alone, tried again in vain, back."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._told: dict[str, int] = dict.fromkeys(ledger.judges_away(), -1)
        """Tries in vain that were told of, by signal; -1: by a grader before this one."""

    def look(self, judges: Iterable[tuple[SignalConfig, JudgeSignal]]) -> None:
        """Write what has changed since the last look."""
        for config, judge in judges:
            away = judge.away()
            if away is None and config.name in self._told:
                del self._told[config.name]
                self._tell(JUDGE_BACK, config.name, "it is asked again")
            elif away is not None and self._told.get(config.name) != away.tries:
                self._told[config.name] = away.tries
                self._tell(JUDGE_AWAY, config.name, _sentence(away, time.time()))

    def _tell(self, kind: str, signal: str, said: str) -> None:
        event = Event(at=time.time(), process="grader", kind=kind, subject=signal, detail=said)
        self._ledger.event(event)


def _sentence(away: Away, now: float) -> str:
    """It says times of the day, since it is read later."""
    since, then = (
        datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")
        for at in (now - away.open_s, now + away.next_s)
    )
    return f"breaker open since {since} UTC ({away.why}), next try at {then} UTC"
