"""The ladder: signals of known worth, measured on real answers."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace

import pytest

from tradewind.rewards.admission.admit import verifiable
from tradewind.rewards.config import Composition, SignalConfig
from tradewind.rewards.ladder.labels import read_labels
from tradewind.rewards.ladder.options import LadderOptions
from tradewind.rewards.ladder.rank import decide, rank
from tradewind.rewards.ladder.rung import Rung, Use
from tradewind.rewards.ladder.subject import Subject, made, made_subjects
from tradewind.rewards.panel import Panel
from tradewind.rewards.registry import USES
from tradewind.rewards.signal import Kind, Signal, Verdict
from tradewind.rewards.trust.statistics import usable_signal
from tradewind.types import Episode, Outcome, UserError
from tradewind.types.config import Config


@pytest.fixture(scope="module")
def answers(desk) -> list[Subject]:
    with closing(Panel(verifiable(Composition(signals=(desk.rows,))))) as panel:
        return made_subjects(desk.tasks, panel, 8)


def rungs(desk, subjects, *names, **options):
    signals = [desk.rows if name == "resultset" else desk.signal(name) for name in names]
    found = rank(signals, subjects, LadderOptions(**options))
    return {rung.name: rung for rung in found}


def test_the_executable_check_wins_and_the_necessary_one_becomes_a_gate(desk, answers):
    found = rungs(desk, answers, "form", "always", "resultset")
    assert next(iter(found)) == "resultset"
    assert found["resultset"].verdict is Use.USE
    assert found["resultset"].usable > 0.9
    assert found["form"].verdict is Use.GATE
    assert found["form"].false_no == 0 < found["form"].false_yes < 1
    assert found["form"].compared_with["resultset"] > 100  # mutants, by the more verifiable signal
    assert found["always"].verdict is Use.REFUSE


def test_a_signal_that_draws_lots_is_refused_for_its_repeats(desk, answers):
    coin = rungs(desk, answers, "coin", "resultset")["coin"]
    assert coin.verdict is Use.REFUSE
    assert coin.determinism < 0.8
    assert "repeats of the same answer" in coin.reason


def test_a_signal_that_always_fails_is_refused_and_loses_nothing(desk, answers):
    broken = rungs(desk, answers[:60], "broken", "resultset")["broken"]
    assert (broken.verdict, broken.nulls) == (Use.REFUSE, broken.n)
    assert "verdicts are null" in broken.reason


def test_an_attack_that_pays_is_named_and_keeps_a_signal_from_being_the_reward(desk, answers):
    alone = rungs(desk, answers, "always")["always"]
    assert set(alone.passed_attacks) == {"no-op", "empty", "constant", "master key", "echo"}
    assert alone.survived == 0
    assert alone.verdict is Use.REFUSE


def test_usable_signal_is_phi_squared_at_the_pass_rate_of_the_run(desk, answers):
    form = rungs(desk, answers, "form", "resultset", pass_rate=0.05)["form"]
    assert form.rate == 0.05
    assert form.usable == pytest.approx(usable_signal(0.05, form.false_yes, form.false_no))
    assert form.usable < rungs(desk, answers, "form", "resultset", pass_rate=0.5)["form"].usable


def stored(task, number: int, sql: str, group: str, **labels: bool) -> Subject:
    outcome = Outcome(status="completed", artefacts={"sql": sql})
    episode = Episode(rollout_id=f"{group}-r{number}", task=task, outcome=outcome)
    return Subject(episode, group=group, labels={name: [said] for name, said in labels.items()})


def test_discrimination_is_counted_inside_groups_and_null_variance_shows(desk):
    subjects = []
    for number, task in enumerate(desk.tasks[:20]):
        right, wrong = task.reference["sql"], "select 0"
        for index, sql in enumerate((right, wrong) if number < 15 else (right, right)):
            subjects.append(stored(task, index, sql, f"g{number}"))
    found = rungs(desk, subjects, "resultset", "always", "strict", evidence=10)
    assert found["resultset"].spread == 0.75
    assert (found["always"].spread, found["always"].concordance) == (0.0, 0.5)
    assert found["strict"].concordance == 1.0
    assert found["resultset"].rate == pytest.approx(25 / 40)


def test_labels_of_people_outrank_everything_and_may_speak_of_one_signal(desk):
    subjects = []
    for number, task in enumerate(desk.tasks):
        right = task.reference["sql"]
        # People say that what the verifier calls right is wrong, and the other way round.
        subjects.append(stored(task, 0, right, f"g{number}", **{"": False, "form": True}))
        subjects.append(stored(task, 1, "select 0", f"g{number}", **{"": True, "form": False}))
    found = rungs(desk, subjects, "resultset", "form")
    assert found["resultset"].agreement == 0.0
    assert found["resultset"].verdict is Use.REFUSE
    assert found["form"].agreement == 1.0
    assert found["form"].compared_with == {"labels": len(subjects)}


def test_people_are_a_rung_of_their_own_and_are_not_held_against_themselves(desk):
    """`rewards rank` had no row for what people said, though half of its truth came from them."""
    subjects = []
    for number, task in enumerate(desk.tasks[:30]):
        right, wrong = (task.reference["sql"], "select 0")
        one = stored(task, 0, right, f"g{number}", **{"": number > 2})
        two = stored(task, 1, wrong, f"g{number}", **{"": False})
        split = replace(one, labels={"": [1.0, float(number > 4)]})
        subjects += [split if number > 2 else one, two]
    found = rungs(desk, subjects, "resultset")
    row = found["people"]
    assert list(found) == ["resultset", "people"], "less verifiable than what was run"
    assert (row.kind, row.n, row.nulls) == (Kind.LABEL, 60, 2), "twice they were divided"
    assert row.determinism == pytest.approx(25 / 27), "of pairs of people"
    assert row.compared_with == {"resultset": 58}
    assert (row.false_no, row.false_yes) == (pytest.approx(3 / 28), 0.0)
    assert row.verdict is Use.MONITOR and "too seldom" in row.reason
    assert found["resultset"].compared_with == {"labels": 58}


def test_people_who_disagree_are_refused(desk):
    subjects = [
        replace(stored(task, 0, "select 0", f"g{n}"), labels={"tone": [1.0, 0.0, 1.0]})
        for n, task in enumerate(desk.tasks[:10])
    ]
    row = rungs(desk, subjects, "resultset")["people.tone"]
    assert row.verdict is Use.REFUSE and "only 33%" in row.reason


def test_too_few_known_answers_decide_nothing(desk):
    few = [made(task, "oracle", {"sql": task.reference["sql"]}, True) for task in desk.tasks[:5]]
    only = rungs(desk, few, "resultset")["resultset"]
    assert only.verdict is Use.MONITOR
    assert "no right and wrong answers are known" in only.reason


def rung(**changes) -> Rung:
    values = {"name": "tone", "use": "judge", "role": "weighted", "kind": Kind.JUDGED}
    values |= {"version": "1", "n": 200, "nulls": 0, "right": 100, "wrong": 100, "rate": 0.5}
    values |= {"false_yes": 0.05, "false_no": 0.05, "usable": 0.81, "seconds": 1.0}
    return Rung.model_validate({**values, **changes})


ABOVE = rung(name="rows", use="resultset", kind=Kind.EXECUTABLE)


@pytest.mark.parametrize(
    ("changes", "above", "verdict", "said"),
    [
        ({}, None, Use.USE, "81% of the signal is left at a pass rate of 50%"),
        ({}, ABOVE, Use.MONITOR, "rows serves and is more verifiable"),
        ({"usable": 0.3}, None, Use.MONITOR, "only 30% of the signal is left"),
        ({"determinism": 0.85}, None, Use.REFUSE, "only 85% agree, 90% must"),
        ({"determinism": 0.95}, None, Use.USE, ""),
        ({"determinism": 0.95, "kind": Kind.CHECK}, None, Use.REFUSE, "98% must"),
        ({"nulls": 30}, None, Use.REFUSE, "30 of its 200 verdicts are null"),
        ({"passed_attacks": {"echo": "9 of 9"}}, None, Use.REFUSE, "falls for known attacks: echo"),
        ({"false_yes": 0.6, "false_no": 0.4}, None, Use.REFUSE, "as often as right ones"),
        ({"kind": Kind.BEHAVIOUR}, None, Use.MONITOR, "how the agent went about it"),
        ({"wrong": 3}, None, Use.MONITOR, "3 wrong answers; 20 of each are needed"),
        ({"usable": None}, None, Use.MONITOR, "no right and wrong answers are known"),
        (
            {"kind": Kind.CHECK, "usable": 0.3, "false_no": 0.01, "false_yes": 0.5},
            None,
            Use.GATE,
            "turns down 50% of what is wrong and 1% of what is right",
        ),
        ({"usable": 0.3, "false_no": 0.0, "false_yes": 0.5}, None, Use.MONITOR, "only 30%"),
    ],
)
def test_each_verdict_has_its_reason(changes, above, verdict, said):
    found, reason = decide(rung(**changes), above, LadderOptions())
    assert found is verdict
    assert said in reason


def test_labels_are_read_line_by_line_and_a_bad_line_is_named(tmp_path):
    file = tmp_path / "labels.jsonl"
    rows = [{"rollout_id": "a", "label": 1}, {"rollout_id": "a", "label": False, "signal": "tone"}]
    file.write_text("".join(json.dumps(row) + "\n\n" for row in rows))
    assert read_labels(file) == {"a": {"": (1.0,), "tone": (0.0,)}}
    file.write_text('{"rollout_id": "a"}\n')
    with pytest.raises(UserError, match=r"line 1 of the labels .*label: Field required"):
        read_labels(file)
    with pytest.raises(UserError, match="labels cannot be read"):
        read_labels(tmp_path / "nothing")


class Judge(Signal):
    """Says what it is told to, with what a judge's evidence holds."""

    takes, version, kind = Config, "1", Kind.JUDGED
    asked = 0

    def score(self, episode):
        Judge.asked += 1
        right = episode.outcome.artefacts.get("sql") == episode.task.reference["sql"]
        usage = {"calls": 1, "tokens": 300, "usd": 0.002, "estimated": False}
        evidence = {"usage": usage, "cached": Judge.asked > 40}
        return Verdict(value=float(right), evidence=evidence)


def test_a_judge_is_asked_about_some_answers_of_each_making_and_its_cost_is_shown(
    desk, answers, monkeypatch
):
    monkeypatch.setitem(USES, "judge", Judge)
    tone = SignalConfig(name="tone", use="judge")
    found = rank([desk.rows, tone], answers, LadderOptions(judged=60, repeated=10, evidence=5))
    judged = next(rung for rung in found if rung.name == "tone")
    assert judged.n == 60
    assert judged.attacks == 5 and judged.compared_with["resultset"] >= 5
    assert (judged.tokens, judged.usd) == (300.0, pytest.approx(0.002))
    assert judged.verdict is Use.MONITOR and "resultset serves" in judged.reason
