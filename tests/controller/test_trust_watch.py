"""A judge that fails loses its weight for whole groups; an alarm pauses with a named cause."""

from __future__ import annotations

import time

import pytest

from tradewind.controller.config import ControllerConfig
from tradewind.controller.rounds import Rounds
from tradewind.controller.trust import TrustWatch
from tradewind.controller.waits import waits
from tradewind.ledger.groups import reject
from tradewind.ledger.ledger import Ledger
from tradewind.ledger.rollouts import LeaseTerms
from tradewind.ledger.trust import Judge
from tradewind.rewards.config import Composition
from tradewind.types import Outcome, PoolOrder, PoolReport, Score, Step, Task, WeightVersion
from tradewind.types.trust import Probe, TrustState

POOL = PoolReport(
    pool="desk",
    url="http://127.0.0.1:1",
    base_state_id="s0",
    version=0,
    state="serving",
    max_batch=8,
    running=0,
    waiting=0,
    tokens_per_s=0.0,
    dtype="fp32",
    at=0.0,
)
TERMS = LeaseTerms(ttl_s=60.0, deadline_s=60.0, max_running=1000)
PROBES = [
    {"kind": "canary", "name": "empty", "values": (0.0,), "expected": 0.0},
    *[{"kind": "repeat", "name": f"r{n}", "values": (1.0, 1.0, 1.0)} for n in range(20)],
]


class Desk:
    """A run with one verifier and judges that say what the test says."""

    def __init__(self, folder, judges: dict[str, float], **settings) -> None:
        self.ledger = Ledger.open(folder / "ledger.sqlite")
        self.ledger.create_run({"seed": 1})
        self.ledger.add_tasks(
            Task(task_id=f"t{i}", kind="k", split="train", input={}, reference={}) for i in range(9)
        )
        base = {"version": 0, "state_id": "s0", "parent_state_id": None, "manifest": "m"}
        self.ledger.commit_version(WeightVersion(**base, stage="b", bytes_shipped=1, bytes_full=1))
        signals = [{"name": "truth", "use": "resultset", "role": "monitor"}]
        signals += [{"name": n, "use": "judge", "weight": w} for n, w in judges.items()]
        used = Composition.model_validate({"signals": signals})
        self.ledger.use_composition(used.version, used.model_dump(mode="json"))
        self.judges = list(judges)
        for name in judges:
            self.meet(name)
        self.ledger.set_meta("training_open", True)
        alarms = {"every_s": 0.0, **settings.pop("alarms", {})}
        config = {"group_size": 4, "groups_per_step": 1, "max_staleness": 0, "alarms": alarms}
        self.config = ControllerConfig.model_validate({**config, **settings})
        self.rounds = Rounds(self.config, self.ledger, time.time)

    def meet(self, name: str, version: str = "1", minimum: str = "probation") -> None:
        judge = {"signal": name, "version": version, "minimum": minimum, "truth": "truth"}
        self.ledger.meet_judge(Judge.model_validate({**judge, "about": {}}))

    def probe(self, judge: str, **fields) -> None:
        made = {"signal": judge, "version": "1", "at": time.time(), **fields}
        self.ledger.add_probe(Probe.model_validate(made))

    def calibrate(self, name: str) -> None:
        for fields in PROBES:
            self.probe(name, **fields)

    def round(self) -> None:
        """Look, and act on it."""
        self.rounds.look()
        self.rounds.round()

    def play(self, verdicts) -> list[str]:
        """Open, answer and grade a round of groups.

        `verdicts(number)` is the truth and what each judge says.
        """
        self.ledger.record_pool(POOL.model_copy(update={"at": time.time()}), time.time())
        self.round()
        graded = []
        while (leased := self.ledger.lease_next("w", time.time(), TERMS, [0])) is not None:
            told = verdicts(len(graded))
            said = {source: told[source] for source in ("truth", *self.judges)}
            self.ledger.finish(leased.rollout_id, Outcome(status="completed"), time.time())
            self.ledger.claim_finished("g", 100, time.time(), 60.0)
            scores = [
                Score(
                    rollout_id=leased.rollout_id,
                    source=source,
                    source_version="1",
                    value=value,
                    cause="env_error: down" if value is None else None,
                )
                for source, value in said.items()
            ]
            null = any(value is None for value in said.values())
            self.ledger.write_scores(leased.rollout_id, scores, null=null)
            graded.append(leased.rollout_id)
        self.round()
        return graded

    def factors(self) -> dict[str, float]:
        return {name: self.ledger.standing(name, "1").factor for name in self.judges}

    def events(self, kind: str) -> list[str]:
        return [event.detail for event in self.ledger.events() if event.kind == kind]

    def train(self, version: int) -> None:
        """A step on the group that is closed."""
        (group, *_) = self.ledger.newest_groups(1, 0.0)
        made = {"version": version, "state_id": f"s{version}", "parent_state_id": f"s{version - 1}"}
        self.ledger.commit_step(
            Step(
                step=version - 1,
                version=version,
                group_ids=(group.group_id,) if version == 1 else (),
                metrics={},
                seconds=1.0,
                committed_at=time.time(),
            ),
            WeightVersion(**made, manifest="m", stage="rl", bytes_shipped=1, bytes_full=1),
        )

    def make_room(self) -> None:
        """As if the closed group had been trained."""
        for group in self.ledger.newest_groups(9, 0.0):
            with self.ledger.write() as conn:
                reject(conn, group.group_id, "makes room", wait=True)


@pytest.fixture
def desk(tmp_path):
    made = []

    def make(judges, **settings) -> Desk:
        made.append(Desk(tmp_path, judges, **settings))
        return made[-1]

    yield make
    for one in made:
        one.ledger.close()


def agree(number: int) -> dict[str, float | None]:
    truth = float(number % 2)
    return {"truth": truth, "good": truth, "bad": truth}


def fooled(number: int) -> dict[str, float | None]:
    """The bad judge has begun to say yes to everything."""
    truth = float(number % 2)
    return {"truth": truth, "good": truth, "bad": 1.0}


def earn_trust(desk: Desk) -> None:
    for name in desk.judges:
        desk.calibrate(name)
    for _ in range(60):
        desk.make_room()
        assert desk.play(agree), "no rollout is left to calibrate with"
        if set(desk.factors().values()) == {1.0}:
            return
    raise AssertionError(desk.factors())


def test_judges_count_from_when_they_have_earned_it(desk):
    d = desk({"good": 1.0, "bad": 1.0})
    d.play(agree)
    assert d.factors() == {"good": 0.0, "bad": 0.0}
    assert d.ledger.closed() == 0
    (cause, *_) = d.events("group.rejected")
    assert "its judge is not trusted" in cause
    earn_trust(d)
    d.make_room()
    d.play(agree)
    assert d.ledger.closed() == 1


def test_a_judge_that_is_fooled_leaves_the_formula_of_whole_groups(desk):
    d = desk({"good": 1.0, "bad": 3.0})
    earn_trust(d)
    for _ in range(60):
        d.make_room()
        d.play(fooled)
        if d.factors()["bad"] == 0.0:
            break
    assert d.factors() == {"good": 1.0, "bad": 0.0}
    (why,) = d.events("judge.quarantined")
    assert "contradict" in why or "specificity" in why
    d.make_room()
    d.play(fooled)
    (closed,) = d.ledger.newest_groups(1, 0.0)
    assert [r.reward for r in closed.rollouts] == [0.0, 1.0, 0.0, 1.0], "only `good` counts"
    assert d.ledger.paused() is None, "one that can be believed is left"


def test_a_quarantine_that_leaves_nothing_pauses_with_its_cause(desk):
    d = desk({"bad": 1.0})
    earn_trust(d)
    d.probe("bad", kind="canary", name="empty", values=(1.0,) * 5, expected=0.0)
    d.round()
    pause = d.ledger.paused()
    assert pause is not None and pause.alarm == "untrusted"
    assert "5 of 5 verdicts on the canary 'empty' were wrong" in pause.cause
    facts = d.rounds.facts()
    assert not facts.training
    (wait, *_) = waits(facts, ControllerConfig())
    assert (wait.process, wait.owner) == ("training", "you")
    assert "tradewind trust resume" in wait.waiting_for and "untrusted" in wait.because


def test_a_person_lets_it_go_on_and_it_does_not_pause_for_the_same_again(desk):
    d = desk({"bad": 1.0})
    earn_trust(d)
    d.probe("bad", kind="canary", name="empty", values=(1.0,) * 5, expected=0.0)
    d.round()
    d.ledger.resume_training(time.time(), "ana")
    d.round()
    assert d.ledger.paused() is None
    assert d.rounds.facts().training


def test_a_judge_that_trained_versions_sends_the_pools_back_to_before_its_first_verdict(desk):
    """Issue: alarms that pause, quarantine or roll back."""
    d = desk({"good": 1.0, "bad": 1.0}, alarms={"judged": "roll_back"})
    earn_trust(d)
    for version in (1, 2):
        d.train(version)
    d.round()
    assert d.ledger.paused() is None
    d.probe("bad", kind="canary", name="empty", values=(1.0,) * 5, expected=0.0)
    for _ in range(3):
        d.round()
    pause = d.ledger.paused()
    assert pause is not None and (pause.alarm, pause.pools) == ("judged", 0)
    assert "versions 1 to 2 were trained with verdicts of bad" in pause.cause
    assert d.ledger.pool_order() == PoolOrder(number=1, version=0), "said once"
    (wait, *_) = waits(d.rounds.facts(), ControllerConfig())
    assert "pools go back to version 0" in wait.because and wait.owner == "you"
    assert d.events("pools.sent_back") == ["to version 0"]
    d.ledger.resume_training(time.time(), "ana")
    d.round()
    assert d.ledger.paused() is None
    assert d.ledger.pool_order() == PoolOrder(number=2, version=None)


def test_an_alarm_takes_the_trainer_back_too_where_the_recipe_says_so(desk):
    """Issue: after a hacked stretch the only way back was a new run."""
    d = desk({"good": 1.0, "bad": 1.0}, alarms={"judged": "return"})
    earn_trust(d)
    d.train(1)
    d.round()
    d.probe("bad", kind="canary", name="empty", values=(1.0,) * 5, expected=0.0)
    for _ in range(3):
        d.round()
    order = d.ledger.return_order()
    assert (order.back_to, order.who) == (0, "the alarm 'judged'")
    assert len(d.events("return.ordered")) == 1 and d.ledger.pool_order().version == 0
    (wait, *_) = waits(d.rounds.facts(), ControllerConfig())
    assert "pools and the trainer go back to version 0" in wait.because
    made = {"version": 2, "state_id": "s0", "parent_state_id": "s1", "manifest": "m"}
    back = WeightVersion(**made, stage="return", bytes_shipped=1, bytes_full=1)
    d.ledger.commit_return(order, back)
    for _ in range(3):
        d.round()
    assert d.ledger.return_order() is None, "what it was about is withdrawn"
    d.ledger.resume_training(time.time(), "ana")
    d.round()
    assert d.ledger.paused() is None


def test_judges_that_nobody_knows_yet_do_not_pause(desk):
    d = desk({"good": 1.0, "bad": 1.0})
    d.probe("bad", kind="canary", name="empty", values=(1.0,) * 5, expected=0.0)
    d.round()
    assert d.ledger.standing("bad", "1").state is TrustState.QUARANTINED
    assert d.ledger.paused() is None


def test_one_that_fell_and_left_the_reward_does_not_pause_its_successor(desk):
    """Another judge is in use, and no grader has said yet who it is: it may earn its trust."""
    d = desk({"bad": 1.0})
    signals = {"signals": [{"name": "other", "use": "judge"}]}
    used = Composition.model_validate(signals)
    d.ledger.use_composition(used.version, used.model_dump(mode="json"))
    d.probe("bad", kind="canary", name="empty", values=(1.0,) * 5, expected=0.0)
    d.round()
    assert d.ledger.standing("bad", "1").state is TrustState.QUARANTINED
    assert d.ledger.paused() is None


def test_a_clock_that_was_set_back_does_not_blind_the_watch(desk):
    d = desk({"bad": 1.0}, alarms={"every_s": 5.0})
    watch = TrustWatch(d.config, d.ledger)
    watch.look(time.time() + 3600.0)
    d.probe("bad", kind="canary", name="empty", values=(1.0,) * 5, expected=0.0)
    watch.look(time.time())
    assert d.ledger.standing("bad", "1").state is TrustState.QUARANTINED


def test_looks_that_take_long_do_not_fill_the_controllers_time(desk, monkeypatch):
    d = desk({"bad": 1.0}, alarms={"every_s": 5.0})
    watch, now = TrustWatch(d.config, d.ledger), time.time()
    ticks = iter([0.0, 2.0, 2.0, 2.0])
    monkeypatch.setattr("tradewind.controller.trust.monotonic", lambda: next(ticks))
    watch.look(now)
    d.probe("bad", kind="canary", name="empty", values=(1.0,) * 5, expected=0.0)
    watch.look(now + 19.0)
    assert d.ledger.standing("bad", "1").state is TrustState.UNCALIBRATED
    watch.look(now + 20.0)
    assert d.ledger.standing("bad", "1").state is TrustState.QUARANTINED


def test_many_nulls_pause_and_say_which(desk):
    d = desk({"good": 1.0}, max_refills=100)
    for played in range(1, 11):
        d.play(lambda number: {"truth": None, "good": None})
        assert (d.ledger.paused() is None) == (4 * played < 40), "a few at the start are no alarm"
    pause = d.ledger.paused()
    assert pause is not None and pause.alarm == "nulls" and "40 env_error" in pause.cause
    assert not d.rounds.facts().training
    standing = d.ledger.standing("good", "1")
    assert standing.state is TrustState.UNCALIBRATED, "the product was down, not the judge"


def test_the_minimum_trust_of_a_criterion_is_respected(desk):
    d = desk({"good": 1.0, "bad": 1.0})
    d.meet("bad", minimum="trusted")
    for name in d.judges:
        d.calibrate(name)
    truths = [(1.0, 1.0)] * 5 + [(0.0, 0.0)] * 5 + [(1.0, 0.0), (0.0, 1.0)]  # 5 of 6 are right

    def so_so(number: int) -> dict[str, float | None]:
        so_so.n += 1
        truth, said = truths[so_so.n % len(truths)]
        return {"truth": truth, "good": said, "bad": said}

    so_so.n = 0
    for _ in range(60):
        d.make_room()
        d.play(so_so)
        if d.ledger.standing("bad", "1").state is TrustState.PROBATION:
            break
    assert d.factors() == {"good": 0.5, "bad": 0.0}
    assert "asks for a judge that is trusted" in d.ledger.standing("bad", "1").reasons[-1]


def test_a_comparison_without_trust_gives_every_judge_its_full_weight(desk):
    d = desk({"bad": 1.0}, trust={"off": True})
    d.play(fooled)
    assert d.ledger.closed() == 1
