"""A judge that does not answer: the rollout is judged again later, and nothing is played again."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from common.scripted_judge import Fault, Script, ScriptedJudge, reply
from common.turns import answered

from tradewind.algo.advantages import group_mean
from tradewind.grader.config import GraderConfig
from tradewind.grader.later import pause_s, waits_for
from tradewind.grader.main import Grader
from tradewind.ledger.ledger import Ledger
from tradewind.ledger.rollouts import LeaseTerms
from tradewind.rewards.compose import compose
from tradewind.rewards.config import Composition
from tradewind.types import Outcome, Score, Task
from tradewind.types.trust import Standing

RUBRIC = """
rubric = "r"
version = "1"
[[criteria]]
id = "c"
question = "Is it so?"
evidence = ["answer:reply"]
"""
CODE = "def right(task, outcome): return 1.0\n"
AWAY = Fault(status=503)


class World:
    def __init__(self, ledger: Ledger, grader: Grader) -> None:
        self.ledger, self.grader = ledger, grader

    def play(self, *, opened: bool = False) -> str:
        """A finished rollout with one answered call, of a new group or of one that is opened."""
        if not opened:
            self.ledger.open_training_group(1)
        terms = LeaseTerms(ttl_s=1e6, deadline_s=1e6, max_running=10)
        leased = self.ledger.lease_next("w", time.time(), terms, ())
        assert leased is not None
        rollout = leased.rollout_id
        answered(self.ledger, rollout)
        outcome = Outcome(status="completed", artefacts={"reply": "it is so"})
        self.ledger.finish(rollout, outcome, time.time())
        return rollout

    def graded(self, rollout: str) -> dict[str, Score]:
        """Its scores, once there are some."""
        deadline = time.monotonic() + 60
        with ThreadPoolExecutor(2) as threads:
            while not self.ledger.scores(rollout):
                assert time.monotonic() < deadline
                self.grader.grade_some(threads)
        return {score.source: score for score in self.ledger.scores(rollout)}

    def told(self, kind: str) -> list[str]:
        return [event.detail for event in self.ledger.events() if event.kind == kind]


def trust(ledger: Ledger, state: str = "trusted", factor: float = 1.0) -> None:
    for judge in ledger.judges():
        made = {"signal": judge.signal, "version": judge.version, "at": 1.0}
        standing = Standing.model_validate({**made, "state": state, "factor": factor})
        ledger.record_standing(standing)


@pytest.fixture
def world(tmp_path: Path):
    @contextmanager
    def make(
        script: Script, trusted: bool = True, **config: object
    ) -> Iterator[tuple[World, ScriptedJudge]]:
        (tmp_path / "c.toml").write_text(RUBRIC)
        (tmp_path / "own.py").write_text(CODE)
        ledger = Ledger.open(tmp_path / "ledger.sqlite")
        ledger.create_run({"seed": 1})
        ledger.add_tasks([Task(task_id="t", kind="k", split="train", input={}, reference={})])
        with ScriptedJudge(script) as judge:
            options = {"criteria": str(tmp_path / "c.toml"), "url": judge.url, "model": "m"}
            signals = [
                {"name": "right", "use": f"{tmp_path / 'own.py'}:right"},
                {"name": "c", "use": "judge", "options": {**options, "attempts": 1}},
            ]
            probes = {"canary_every": 99, "repeat_items": 0, "repeat_share": 0.0, "anchors": 0}
            given = {"judge_again_s": 0.001, "probes": probes, "signals": signals, **config}
            grader = Grader(GraderConfig.model_validate(given), ledger)
            if trusted:
                trust(ledger)
            try:
                yield World(ledger, grader), judge
            finally:
                grader.close()
                assert ledger.audit_report(compose).sound
                ledger.close()

    return make


def test_a_judge_that_was_away_for_a_while_costs_no_second_rollout(world) -> None:
    def script(_: str, text: str, call: int) -> str | Fault:
        return AWAY if call < 2 else reply("yes", quote=text)

    with world(script) as (w, judge):
        rollout = w.play()
        scores = w.graded(rollout)
        assert {name: score.value for name, score in scores.items()} == {"right": 1.0, "c": 1.0}
        assert w.ledger.refill(8) == 0
        assert w.ledger.counts().rollouts == {"graded": 1}
        trust = {("c", scores["c"].source_version): 1.0}
        assert len(w.ledger.close_ready(compose, group_mean, trust)) == 1
        (told,) = w.told("signal.put_off")
        assert told.startswith("judge_overloaded")
        assert judge.calls >= 3, "two in vain, then the verdict"


def test_a_judge_that_stays_away_makes_a_null_after_so_many_tries(world) -> None:
    with world(lambda *_: AWAY, judge_again=2) as (w, judge):
        scores = w.graded(w.play())
        assert judge.calls == 3
        assert scores["right"].value == 1.0
        assert scores["c"].value is None
        assert scores["c"].cause.startswith("judge_overloaded")
        assert w.ledger.refill(8) == 1, "now it is played again"


def test_a_judge_without_weight_that_stays_away_holds_nobody_up_and_makes_no_null(world) -> None:
    """Nobody has said yet that it can be believed: what it does not say changes no reward."""
    with world(lambda *_: AWAY, trusted=False) as (w, judge):
        rollout = w.play()
        scores = w.graded(rollout)
        assert judge.calls == 1, "nobody waits for it"
        assert scores["c"].value is None and scores["c"].cause.startswith("judge_overloaded")
        assert w.ledger.refill(0) == 0 and w.ledger.counts().nulls == 0
        assert len(w.ledger.close_ready(compose, group_mean, {})) == 1
        (closed,) = w.ledger.newest_groups(1, 0.0)
        assert [(r.rollout_id, r.reward) for r in closed.rollouts] == [(rollout, 1.0)]


def test_a_judge_that_gets_its_weight_while_a_group_is_open_is_needed_for_all_of_it(world) -> None:
    answers = iter([AWAY])
    with world(lambda _, t, __: next(answers, reply("yes", quote=t)), trusted=False) as (w, _):
        scores = w.graded(w.play())
        version = scores["c"].source_version
        assert w.ledger.close_ready(compose, group_mean, {("c", version): 1.0}) == []
        assert w.ledger.refill(8) == 1, "the one without its verdict is null now"
        assert w.ledger.counts().nulls == 1


def test_a_judge_that_loses_its_weight_gives_back_what_it_made_null(world) -> None:
    with world(lambda *_: AWAY, judge_again=0) as (w, _):
        first = w.graded(w.play())
        assert w.ledger.refill(8) == 1
        w.graded(w.play(opened=True))
        assert w.ledger.counts().nulls == 2 and w.ledger.refill(8) == 1
        w.graded(w.play(opened=True))
        assert w.ledger.close_ready(compose, group_mean, {}) == [], "no rollout is useful"
        assert first["c"].value is None
        assert w.ledger.refill(8) == 1
        trust(w.ledger, "quarantined", 0.0)
        w.graded(w.play(opened=True))
        assert len(w.ledger.close_ready(compose, group_mean, {})) == 1
        (closed,) = w.ledger.newest_groups(1, 0.0)
        assert [r.reward for r in closed.rollouts] == [1.0] * 4
        assert w.ledger.counts().nulls == 0


def test_a_grader_with_nothing_else_to_do_says_that_it_waits_for_a_judge(world) -> None:
    with world(lambda *_: AWAY, judge_again_s=1e6) as (w, _):
        rollout = w.play()
        with ThreadPoolExecutor(2) as threads:
            assert w.grader.grade_some(threads) == 1
            assert w.grader.grade_some(threads) == 0
        assert w.ledger.scores(rollout) == ()
        w.grader._beat(idle=True)
        (beat,) = w.ledger.beats()
        assert (beat.waiting_for, beat.owner) == ("a judge, for 1 rollouts", "judge")


@pytest.mark.parametrize("status,calls", [(401, 1), (200, 2)])
def test_what_would_be_said_again_is_not_asked_again(world, status: int, calls: int) -> None:
    """A refused key, and a reply that is no verdict (with its one reminder)."""
    with world(lambda *_: Fault(status=status, text="Well.")) as (w, judge):
        scores = w.graded(w.play())
        assert scores["c"].value is None and judge.calls == calls
        assert w.told("signal.put_off") == []


def scored(source: str, value: float | None, kind: str | None = None) -> Score:
    return Score(
        rollout_id="r",
        source=source,
        source_version="1",
        value=value,
        cause=None if value is not None else f"{kind or 'grader_error'}: x",
        evidence={} if kind is None else {"null_class": kind},
    )


JUDGED = Composition.model_validate(
    {
        "signals": [
            {"name": "gate", "role": "gate"},
            {"name": "a", "use": "judge"},
            {"name": "b", "use": "judge"},
            {"name": "watched", "use": "judge", "role": "monitor"},
        ]
    }
)


@pytest.mark.parametrize(
    "values,kinds,waited_for",
    [
        ((1.0, None, 1.0, 1.0), (None, "judge_timeout", None, None), ["a"]),
        ((1.0, None, None, 1.0), (None, "judge_timeout", "judge_busy", None), ["a", "b"]),
        ((1.0, None, None, 1.0), (None, "judge_timeout", "judge_budget", None), []),
        ((1.0, 1.0, 1.0, None), (None, None, None, "judge_timeout"), []),
        ((0.0, None, 1.0, 1.0), (None, "judge_timeout", None, None), []),
        ((None, None, 1.0, 1.0), (None, "judge_timeout", None, None), []),
    ],
    ids=["one", "two", "one is hopeless", "a monitor", "a closed gate", "the verifier failed"],
)
def test_only_a_verdict_that_would_make_a_reward_is_waited_for(values, kinds, waited_for) -> None:
    names = ("gate", "a", "b", "watched")
    scores = [scored(*one) for one in zip(names, values, kinds, strict=True)]
    trust = {"a": 1.0, "b": 0.5}
    assert [score.source for score in waits_for(JUDGED, scores, trust)] == waited_for
    hoped_for = [source for source in waited_for if source == "b" and values[2] is None]
    assert [score.source for score in waits_for(JUDGED, scores, {"b": 0.5})][-1:] == hoped_for


def test_a_judge_that_is_left_alone_is_waited_for_as_long_as_one_that_is_asked() -> None:
    asked = scored("a", None, "judge_timeout")
    spared = asked.model_copy(update={"evidence": {"null_class": "judge_away", "spared_s": 60.0}})
    assert [pause_s(10.0, n, [asked]) for n in range(3)] == [10.0, 20.0, 40.0]
    assert [pause_s(10.0, n, [asked, spared]) for n in range(3)] == [70.0, 80.0, 100.0]
