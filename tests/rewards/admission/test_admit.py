"""Which tasks may train: real verifiers, real queries, tasks with the faults that tasks have."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from orderdesk import build, product
from tradewind.envs.taskset import load_tasks
from tradewind.rewards.admission import attacked
from tradewind.rewards.admission.admit import admit
from tradewind.rewards.admission.leaks import leaks as leak_sentences
from tradewind.rewards.admission.options import AdmissionOptions
from tradewind.rewards.admission.record import read_register, register_file
from tradewind.rewards.attacks.attack import Attack
from tradewind.rewards.config import Composition, SignalConfig
from tradewind.types import Task, UserError

VERIFIER = '''
import itertools

calls = itertools.count()

class Equal:
    """The answer is the reference's, letter by letter."""
    def score(self, task, outcome):
        return float(outcome["artefacts"].get("answer") == task["reference"]["answer"])
    def oracle(self, task):
        return {"answer": task["reference"]["answer"]}

class Within(Equal):
    """Too kind: the answer only has to hold the reference."""
    def score(self, task, outcome):
        return float(task["reference"]["answer"] in str(outcome["artefacts"].get("answer")))

class Moody(Equal):
    """Every third verdict is another one."""
    def score(self, task, outcome):
        return float(next(calls) % 3 < 2) if super().score(task, outcome) else 0.0

class Kind(Equal):
    """Something for having tried."""
    def score(self, task, outcome):
        return max(0.3 * bool(outcome["artefacts"].get("answer")), super().score(task, outcome))

class Brittle(Equal):
    """Fails on what it does not expect."""
    def score(self, task, outcome):
        return super().score(task, {"artefacts": {"answer": outcome["artefacts"]["answer"]}})

class Broken(Equal):
    """Fails on everything."""
    def score(self, task, outcome):
        raise RuntimeError("no luck")

def nobody_knows(task, outcome):
    return float(outcome["artefacts"].get("answer") == task["reference"]["answer"])

equal, within, moody, kind, brittle = Equal(), Within(), Moody(), Kind(), Brittle()
broken = Broken()
'''


@pytest.fixture
def taskset(tmp_path: Path) -> Path:
    (tmp_path / "verifier.py").write_text(VERIFIER)
    return tmp_path / "tasks.jsonl"


def task(number: int, answer: str, question: str = "What is it?", kind: str = "k") -> Task:
    return Task(
        task_id=f"t-{number}",
        kind=kind,
        split="train",
        input={"question": question},
        reference={"answer": answer},
    )


def reward(taskset: Path, name: str) -> Composition:
    return Composition(signals=(SignalConfig(use=f"{taskset.parent}/verifier.py:{name}"),))


def found(taskset: Path, tasks: list[Task], name: str, **options: object) -> dict[str, list[str]]:
    """The rules that each task fails."""
    done = admit(taskset, tasks, reward(taskset, name), AdmissionOptions(**options), parallel=1)
    return {a.task_id: [failure.rule for failure in a.failures] for a in done.admissions}


FULL = os.environ.get("TRADEWIND_FULL") == "1"

FOUR = [task(n, answer) for n, answer in enumerate(("Oslo 17", "Rome 4", "Lima 99", "Cairo 8"))]


def test_the_quickstarts_own_tasks_are_admitted_but_for_those_with_an_idle_condition(tmp_path):
    build.build(tmp_path, seed=7)
    tasks = load_tasks(tmp_path / "tasks.jsonl")[:: 1 if FULL else 3]
    options = {"database": str(tmp_path / "orderdesk.sqlite"), "max_steps": 1_000_000}
    rows = Composition(signals=(SignalConfig(use="resultset", options=options),))
    done = admit(tmp_path / "tasks.jsonl", tasks, rows, AdmissionOptions())
    assert all(admission.oracle for admission in done.admissions)
    assert len(done.refused) <= 0.01 * len(tasks)
    assert {failure.rule for a in done.refused for failure in a.failures} <= {"mutants"}
    tried = sum(admission.mutants for admission in done.admissions)
    rejected = sum(admission.rejected for admission in done.admissions)
    assert rejected > 0.9 * tried > (1500 if FULL else 500)


def test_a_sound_verifier_admits_and_says_what_it_looked_at(taskset):
    done = admit(taskset, FOUR, reward(taskset, "equal"), AdmissionOptions())
    assert not done.refused
    for admission in done.admissions:
        assert admission.rejected == admission.mutants > 3
        assert admission.guesses > 15
        assert admission.verdicts >= admission.guesses + admission.mutants + 3


@pytest.mark.parametrize(
    ("verifier", "rules"),
    [
        ("moody", ["agreement"]),
        ("kind", ["guess"]),
        ("within", ["mutants"]),
    ],
)
def test_a_verifier_that_cannot_be_believed_admits_nothing(taskset, verifier, rules):
    assert found(taskset, [task(0, "Oslo")], verifier)["t-0"] == rules


def test_an_echo_of_the_prompt_does_not_pass(taskset):
    tasks = [task(0, "Oslo", "Which city is it, Oslo or Rome?")]
    assert "guess" in found(taskset, tasks, "within", rejected=0)["t-0"]


def test_what_stands_in_the_prompt_is_a_leak_unless_it_is_too_short_to_prove_anything(taskset):
    tasks = [
        task(0, "the Treaty of Tordesillas", "Is it THE  TREATY of Tordesillas?"),
        task(1, "1494", "What happened in 1494?"),
    ]
    assert found(taskset, tasks, "equal") == {"t-0": ["leak"], "t-1": []}


PROMPT = 'def last(orders):\n    """The orders without repetition, by the date of each."""\n'
SOLUTION = f"{PROMPT}    return sorted(set(orders), key=lambda order: order.date)\n"
STEPS = "first sort the orders by date, then keep the last of each city"


@pytest.mark.parametrize(
    ("oracle", "shown", "share", "leaks"),
    [
        (STEPS, "Hint: sort the orders by date, then keep the last", 0.6, True),
        (STEPS, "Hint: sort the orders by date", 0.6, False),
        (STEPS, "Hint: sort the orders by date, then keep the last", 1.0, False),
        (SOLUTION, PROMPT, 0.6, False),
        (SOLUTION, PROMPT + "    return sorted(set(orders), key=lambda order:", 0.6, True),
    ],
)
def test_most_of_a_right_answer_is_a_leak_but_not_what_the_question_says(
    oracle, shown, share, leaks
):
    asked = task(0, "", shown)
    assert bool(leak_sentences(asked, {"code": oracle}, 12, share)) == leaks


def test_a_hidden_test_that_the_prompt_names_is_a_leak(taskset):
    leaky = Task(
        task_id="t-0",
        kind="k",
        split="train",
        input={"question": "make test_odd pass"},
        reference={"answer": "x1 y2", "tests": "def test_odd():\n    assert odd(3)\n"},
    )
    assert found(taskset, [leaky], "equal") == {"t-0": ["leak"]}


def test_a_kind_that_one_fixed_answer_solves_is_refused_as_a_whole(taskset):
    tasks = [task(n, "yes" if n else "no") for n in range(5)]
    other = task(9, "Oslo 17", kind="other")
    failed = found(taskset, [*tasks, other], "equal", majority=0.5)
    assert {name for name, rules in failed.items() if "majority" in rules} == {
        task.task_id for task in tasks
    }
    assert failed["t-9"] == []
    even = [task(n, "yes" if n % 2 else "no") for n in range(6)]
    assert not any(found(taskset, even, "equal").values())  # a guess gets half, and half may


def test_a_verifier_that_a_known_attack_opens_admits_nothing(tmp_path, monkeypatch):
    exact = Composition(signals=(SignalConfig(use="exact"),))
    tasks = [task(n, answer) for n, answer in enumerate(("Oslo 17", "Rome 4", "Lima 99"))]
    file = tmp_path / "tasks.jsonl"
    assert not admit(file, tasks, exact, AdmissionOptions()).refused
    peek = Attack("peek", "exact", lambda task: dict(task.reference), "reads the reference")
    monkeypatch.setattr(attacked, "known_attacks", lambda use: (peek,))
    file.with_name("tasks.admission.json").unlink()
    refused = admit(file, tasks, exact, AdmissionOptions()).refused
    assert [a.failures[0].rule for a in refused] == ["attack"] * 3
    assert "'peek' (reads the reference) pays on t-0, t-1" in refused[0].failures[0].sentence


def test_a_function_that_has_to_be_named_is_no_leak(taskset):
    named = Task(
        task_id="t-0",
        kind="k",
        split="train",
        input={"question": "Write has_close_elements(values)."},
        reference={"answer": "Oslo 17", "entry": "has_close_elements"},
    )
    assert found(taskset, [named], "equal") == {"t-0": []}


def test_without_an_oracle_a_task_may_train_and_is_counted(taskset):
    done = admit(taskset, FOUR, reward(taskset, "nobody_knows"), AdmissionOptions())
    assert not done.refused
    assert not any(admission.oracle or admission.mutants for admission in done.admissions)
    assert found(taskset, FOUR[:1], "nobody_knows", need_oracle=True) == {"t-0": ["oracle"]}


def test_an_oracle_in_the_reference_comes_first(taskset):
    wrong = task(0, "Oslo 17").model_copy(
        update={"reference": {"answer": "Oslo 17", "oracle": {"answer": "Rome"}}}
    )
    assert found(taskset, [wrong], "equal") == {"t-0": ["oracle"]}


def test_a_verifier_that_fails_on_a_guess_gives_no_reward_and_is_counted(taskset):
    done = admit(taskset, FOUR[:1], reward(taskset, "brittle"), AdmissionOptions())
    assert not done.refused
    assert done.admissions[0].undecided == 1  # the answer that is not there


def test_a_task_that_did_not_change_is_not_tried_again(taskset):
    def looked_at(tasks, name="equal", **options):
        said = AdmissionOptions(**options)
        return admit(taskset, tasks, reward(taskset, name), said).looked_at

    assert looked_at(FOUR) == 4
    assert looked_at(FOUR) == 0
    assert looked_at([*FOUR, task(9, "Oslo 1", kind="other")]) == 1
    changed = [FOUR[0].model_copy(update={"input": {"question": "And now?"}}), *FOUR[1:]]
    assert looked_at(changed) == 4  # what is usual in a kind depends on all its tasks
    assert looked_at(changed, floor=0.2) == 4
    verifier = taskset.parent / "verifier.py"
    verifier.write_text(verifier.read_text() + "\n# another version\n")
    assert looked_at(changed, floor=0.2) == 4
    assert looked_at(changed, floor=0.2) == 0


def test_what_was_found_is_kept_beside_the_taskset_with_hashes_and_thresholds(taskset):
    admit(taskset, FOUR, reward(taskset, "moody"), AdmissionOptions(repeats=4), parallel=1)
    kept = json.loads(register_file(taskset).read_text())
    assert register_file(taskset).name == "tasks.admission.json"
    assert kept["options"]["repeats"] == 4
    assert set(kept["tasks"]) == {task.task_id for task in FOUR}
    assert "moody said" in kept["tasks"]["t-0"]["failures"][0]["sentence"]
    register_file(taskset).write_text("{ damaged")
    assert read_register(taskset) is None
    assert admit(taskset, FOUR, reward(taskset, "equal"), AdmissionOptions()).looked_at == 4


def test_a_changed_database_is_another_verifier(tmp_path):
    product.create(tmp_path / "orderdesk.sqlite", 7)
    file = tmp_path / "tasks.jsonl"
    asked = {"input": {"question": "How many?"}, "reference": {"sql": "select count(*) from items"}}
    tasks = [Task.model_validate({"task_id": "t", "kind": "k", "split": "train", **asked})]
    options = {"database": str(tmp_path / "orderdesk.sqlite")}
    rows = Composition(signals=(SignalConfig(use="resultset", options=options),))
    assert admit(file, tasks, rows, AdmissionOptions(attacked=0)).looked_at == 1
    with closing(sqlite3.connect(options["database"])) as connection:
        connection.execute("delete from shipments where order_id = 0")
        connection.commit()
    assert admit(file, tasks, rows, AdmissionOptions(attacked=0)).looked_at == 1


def test_only_what_can_be_verified_without_a_policy_is_asked(taskset):
    judged = SignalConfig(name="tone", use="judge", weight=0.5)
    mixed = Composition(signals=(*reward(taskset, "equal").signals, judged))
    assert not admit(taskset, FOUR, mixed, AdmissionOptions()).refused  # no judge was opened
    alone = Composition(signals=(judged,))
    leaky = task(0, "the Treaty of Tordesillas", "the treaty of tordesillas?")
    done = admit(taskset, [leaky, *FOUR[1:]], alone, AdmissionOptions())
    assert [a.task_id for a in done.refused] == ["t-0"]


def test_a_signal_that_cannot_be_opened_is_a_sentence(taskset):
    broken = Composition(signals=(SignalConfig(use=f"{taskset.parent}/nothing.py:score"),))
    with pytest.raises(UserError, match="file does not exist"):
        admit(taskset, FOUR, broken, AdmissionOptions())


def test_a_verifier_that_always_fails_ends_admission_after_a_few_tasks(taskset):
    """Seen: a grader that hangs kept admission busy for hours, deadline after deadline."""
    heard: list[int] = []
    tasks = [task(n, f"answer number {n}") for n in range(40)]
    broken = reward(taskset, "broken")
    with pytest.raises(UserError, match=r"fails on the right answers of the first 5 tasks; t-\d"):
        admit(taskset, tasks, broken, AdmissionOptions(), parallel=1, tell=heard.append)
    assert heard[-1] == 35
    assert not register_file(taskset).exists()
