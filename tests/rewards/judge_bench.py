"""Judges over real HTTP on loopback, as a script says; needs `benchmarks` on the path."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from common.scripted_judge import Script, ScriptedJudge

from tradewind.rewards.criteria.criterion import Criterion, Evidence, Rubric
from tradewind.rewards.criteria.exhibit import Exhibit
from tradewind.rewards.judges.endpoint import Endpoint
from tradewind.rewards.judges.judge import Judge
from tradewind.rewards.judges.options import JudgeOptions
from tradewind.rewards.judges.settled import Judgement
from tradewind.rewards.judges.store import Store

Clock = Callable[[], float]

ANSWER = "There are 12 open orders,\n  all from Porto."


def criterion(**fields: Any) -> Criterion:
    given = {"id": "names-a-city", "question": "Does the answer name a city?", **fields}
    return Criterion(**{"evidence": (Evidence(scope="answer"),), **given})


def exhibit(text: str = ANSWER, **others: str) -> Exhibit:
    return Exhibit(shown={"answer": text, **others}, task="How many orders are open?")


class Bench:
    """A scripted judge and a `Judge` that asks it; no pause is really waited for.

    Seconds pass on its clock only where a test says so, if it is given a `clock`.
    """

    def __init__(self, server: ScriptedJudge, clock: Clock, **options: Any) -> None:
        self.server, self.pauses = server, list[float]()
        given = {"url": server.url, "model": "judge-1", **options}
        self.options = JudgeOptions(**given)
        self.store = Store(self.options.store)
        self.endpoint = Endpoint(self.options, self.store, clock=clock, sleep=self._sleep)
        self.judge = Judge(self.options, self.endpoint, self.store)

    def decide(self, shown: Exhibit | None = None, **fields: Any) -> Judgement:
        asked = criterion(**fields)
        rubric = Rubric(name="desk", version="1", criteria=(asked,))
        return self.judge.decide(rubric, asked, shown or exhibit())

    def _sleep(self, seconds: float) -> None:
        if seconds:
            self.pauses.append(seconds)


@contextmanager
def bench(script: Script, clock: Clock = time.monotonic, **options: Any) -> Iterator[Bench]:
    with ScriptedJudge(script) as server:
        found = Bench(server, clock, **options)
        try:
            yield found
        finally:
            found.judge.close()
