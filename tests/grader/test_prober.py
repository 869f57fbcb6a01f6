"""What a grader asks its judges beside the rewards, over a real connection to a scripted one."""

from __future__ import annotations

import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from common.scripted_judge import ScriptedJudge, reply

from tradewind.grader.config import GraderConfig
from tradewind.grader.main import Grader
from tradewind.ledger.ledger import Ledger
from tradewind.ledger.rollouts import LeaseTerms
from tradewind.rewards.config import Composition
from tradewind.types import (
    Completion,
    Outcome,
    Task,
    Turn,
    TurnState,
    UserError,
    VersionSpan,
    WeightVersion,
    turn_id,
)

RUBRIC = """
rubric = "desk"
version = "1"
author = "test"
[[criteria]]
id = "right"
question = "Does the answer say the number of the rows?"
evidence = ["answer:reply", "state:rows"]
"""
TRUTH = """
def truth(task, outcome):
    return float(outcome["artefacts"]["reply"].endswith("right."))
"""


def honest(criterion: str, evidence: str, call: int) -> str:
    found = [line for line in evidence.splitlines() if line.endswith("right.")]
    return reply("yes" if found else "no", quote=found[0] if found else None)


def gullible(criterion: str, evidence: str, call: int) -> str:
    return reply("yes", quote=evidence.strip().splitlines()[0])


class World:
    def __init__(self, folder: Path, grader: Grader, ledger: Ledger) -> None:
        self.folder, self.grader, self.ledger = folder, grader, ledger

    def play(self, n: int) -> None:
        """`n` rollouts: every second one is right, each in its own words."""
        terms = LeaseTerms(ttl_s=60.0, deadline_s=60.0, max_running=1000)
        done = self.ledger.counts().rollouts.get("graded", 0)
        self.ledger.open_training_group(n)
        for number in range(done, done + n):
            leased = self.ledger.lease_next("w", time.time(), terms, [0])
            assert leased is not None
            called(self.ledger, leased.rollout_id)
            said = "right" if number % 2 else "wrong"
            outcome = {"reply": f"Answer {number} is {said}.", "rows": "3"}
            self.ledger.finish(
                leased.rollout_id, Outcome(status="completed", artefacts=outcome), time.time()
            )
        with ThreadPoolExecutor(2) as threads:
            while self.grader.grade_some(threads):
                pass

    def restart(self) -> None:
        self.grader.close()
        self.grader = Grader(self.grader._config, self.ledger)

    def probes(self, kind: str):
        (judge,) = self.ledger.judges()
        return [p for p in self.ledger.probes("right", judge.version) if p.kind == kind]


def called(ledger: Ledger, rollout: str) -> None:
    turn = Turn(
        turn_id=turn_id(rollout, 0),
        rollout_id=rollout,
        index=0,
        parent=None,
        state="intent",
        prompt_ids=(1,),
        completion=None,
        temperature=1.0,
        messages=(),
        started_at=time.time(),
    )
    ledger.write_intent(turn)
    spans = (VersionSpan(version=0, count=1),)
    sampled = {"output_ids": (2,), "logprobs": (-0.1,), "finish_reason": "stop", "pool": "p"}
    done = Completion(**sampled, spans=spans)
    change = {"state": TurnState.DONE, "completion": done, "finished_at": time.time()}
    ledger.finish_turn(turn.model_copy(update=change))


@pytest.fixture
def world(tmp_path):
    @contextmanager
    def make(script, **probes):
        (tmp_path / "desk.toml").write_text(RUBRIC)
        (tmp_path / "truth.py").write_text(TRUTH)
        ledger = Ledger.open(tmp_path / "ledger.sqlite", (tmp_path / "bucket").as_uri())
        ledger.create_run({"seed": 1})
        tasks = (
            Task(task_id=f"t{i}", kind="k", split="train", input={}, reference={}) for i in range(9)
        )
        ledger.add_tasks(tasks)
        base = {"version": 0, "state_id": "s0", "parent_state_id": None, "manifest": "m"}
        ledger.commit_version(WeightVersion(**base, stage="b", bytes_shipped=1, bytes_full=1))
        with ScriptedJudge(script) as judge:
            options = {"criteria": str(tmp_path / "desk.toml"), "url": judge.url, "model": "m"}
            signals = [
                {"name": "truth", "use": f"{tmp_path / 'truth.py'}:truth", "role": "monitor"},
                {"name": "right", "use": "judge", "options": {**options, "repeats": 1}},
            ]
            config = {"signals": signals, "probes": {"truth": {"right": "truth"}, **probes}}
            grader = Grader(GraderConfig.model_validate(config), ledger)
            made = World(tmp_path, grader, ledger)
            try:
                yield made
            finally:
                made.grader.close()
                ledger.close()

    return make


def test_an_honest_judge_is_asked_and_answers_every_canary(world):
    with world(honest, canary_every=1, repeat_items=5, repeat_share=0.0) as w:
        w.play(40)
        (judge,) = w.ledger.judges()
        assert (judge.signal, judge.truth) == ("right", "truth")
        canaries = w.probes("canary")
        kinds = {probe.name.partition(":")[0] for probe in canaries}
        assert kinds >= {"empty", "master_key", "injection", "verbosity", "echo", "position"}
        assert all(len(probe.values) == 1 for probe in canaries), "nothing had to be confirmed"
        assert all(probe.values[0] == probe.expected for probe in canaries)
        assert len(w.probes("repeat")) == 5
        assert {len(probe.values) for probe in w.probes("repeat")} == {3}


def test_a_judge_that_says_yes_to_everything_fails_its_canaries_at_once(world):
    with world(gullible, canary_every=1, canary_confirm=4, repeat_items=0) as w:
        w.play(8)
        failed = [p for p in w.probes("canary") if p.expected == 0.0 and set(p.values) == {1.0}]
        assert failed and all(len(probe.values) == 5 for probe in failed)


def test_a_canary_comes_with_every_so_many_rollouts(world):
    with world(honest, canary_every=4, repeat_items=0, repeat_share=0.0) as w:
        w.play(16)
        assert len(w.probes("canary")) == 4


def test_wrong_work_is_the_plainest_that_the_verifier_failed(world):
    with world(honest, canary_every=1, repeat_items=0) as w:
        w.play(12)
        (judge,) = w.ledger.judges()
        verdicts = w.ledger.judged("right", judge.version, judge.truth)
        assert Counter((v.value, v.truth) for v in verdicts) == {(0.0, 0.0): 6, (1.0, 1.0): 6}
        features = verdicts[0].evidence["features"]
        assert features["length"] == len("Answer 0 is wrong.") and features["echo"] > 0
        works = [p.evidence["made_from"] for p in w.probes("canary") if p.name == "echo"]
        assert len(set(works)) == len(works), "each canary is made of another work"


def test_anchors_show_another_judge_under_the_same_name(world):
    now = {"script": honest}
    with world(
        lambda *asked: now["script"](*asked),
        canary_every=99,
        repeat_items=0,
        repeat_share=0.0,
        anchors=6,
        anchor_every=1,
    ) as w:
        w.play(12)
        calm = w.probes("anchor")
        assert len(calm) == 6 and all(p.values[0] == p.expected for p in calm)
        now["script"] = gullible
        w.play(6)
        moved = w.probes("anchor")[6:]
        assert len(moved) == 6 and {p.values[0] for p in moved} == {1.0}
        assert [p.expected for p in moved].count(0.0) == 3
        assert len({p.name for p in moved}) == 6, "each anchor in its turn"


def test_another_judge_that_came_with_a_restart_is_seen_by_the_anchors_from_before(world):
    now = {"script": honest}
    few = {"canary_every": 99, "repeat_items": 0, "repeat_share": 0.0, "anchor_every": 1}
    with world(lambda *asked: now["script"](*asked), anchors=6, **few) as w:
        w.play(6)
        now["script"] = gullible
        w.restart()
        w.play(6)
        moved = w.probes("anchor")
        first = {f"g000000-r{n}" for n in range(6)}
        assert len(moved) == 6 and {p.name for p in moved} == first
        assert {p.values[0] for p in moved} == {1.0}
        assert [p.expected for p in moved].count(0.0) == 3, "what it said before the restart"


def test_a_share_sees_the_held_out_judge_the_same_rollouts_each_time(tmp_path, world):
    with ScriptedJudge(gullible) as other:
        heldout = {"right": {"url": other.url, "model": "other"}}
        with world(
            honest, canary_every=99, repeat_items=0, heldout=heldout, heldout_share=0.5
        ) as w:
            w.play(20)
            pairs = w.probes("heldout")
            assert 4 <= len(pairs) <= 16
            assert other.calls == len(pairs)
            assert {p.values[0] for p in pairs} == {1.0}
            assert {p.expected for p in pairs} == {0.0, 1.0}


def test_a_held_out_judge_that_does_not_work_is_a_sentence_at_the_start(world):
    with (
        pytest.raises(UserError, match="options of signal 'right'"),
        world(honest, heldout={"right": {"modle": "x"}}),
    ):
        pass


def test_another_judge_by_the_same_name_stays_who_judges_after_a_restart(world):
    """A grader that begins again with the recipe's reward, or reads groups that keep it, does not
    give the trust of the recipe's judge to the one that was put in use since.
    """
    with world(honest) as w:
        (first,) = w.ledger.judges()
        version, data = w.ledger.composition()
        options = {**data["signals"][1]["options"], "repeats": 3}
        data["signals"][1] = {**data["signals"][1], "options": options}
        changed = Composition.model_validate(data)
        w.ledger.use_composition(changed.version, changed.model_dump(mode="json"))
        w.play(1)
        (second,) = w.ledger.judges()
        assert second.version != first.version
        recipe = Composition.model_validate(w.ledger.composition(version)[1])
        again = Grader(GraderConfig(signals=recipe.signals), w.ledger)
        again.close()
        assert [judge.version for judge in w.ledger.judges()] == [second.version]
        w.ledger.use_composition(version, recipe.model_dump(mode="json"))
        w.play(1)
        assert [judge.version for judge in w.ledger.judges()] == [first.version]


@pytest.mark.parametrize("what", ["truth", "heldout"])
def test_a_probe_of_a_signal_that_nobody_judges_is_refused(world, what):
    wrong = {"truth": {"rihgt": "truth"}, "heldout": {"rihgt": {"model": "x"}}}
    with (
        pytest.raises(UserError, match="these: right"),
        world(honest, **{what: wrong[what]}),
    ):
        pass


def test_truth_of_a_signal_that_is_not_there_is_refused(world):
    with (
        pytest.raises(UserError, match="no signal of that name"),
        world(honest, truth={"right": "verifier"}),
    ):
        pass
