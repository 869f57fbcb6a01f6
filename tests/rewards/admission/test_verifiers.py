"""Every built-in verifier knows a right answer to its own tasks, and admits them."""

from __future__ import annotations

from pathlib import Path

from boxes import need
from graded import a_task

from tradewind.rewards.admission.admit import admit
from tradewind.rewards.admission.options import AdmissionOptions
from tradewind.rewards.config import Composition, SignalConfig
from tradewind.rewards.sandbox.level import Level

ADDS = {
    "entry": "f",
    "cases": [{"args": [1, 2], "expected": 3}, {"args": [2, 2], "expected": 4}],
    "solution": "def f(a, b):\n    return a + b\n",
}


def refused(tmp_path: Path, use: str, *references: dict, **options: object) -> list[list[str]]:
    """The rules that each task fails."""
    tasks = [
        a_task(reference).model_copy(update={"task_id": f"t-{n}"})
        for n, reference in enumerate(references)
    ]
    composition = Composition(signals=(SignalConfig(use=use, options=options),))
    done = admit(tmp_path / "tasks.jsonl", tasks, composition, AdmissionOptions(attacked=0))
    scorable = [a for a in done.admissions if [f.rule for f in a.failures] != ["scorable"]]
    assert all(admission.oracle for admission in scorable)
    return [[failure.rule for failure in a.failures] for a in done.admissions]


@need(Level.L2)
def test_a_function_with_cases_that_tell_errors_apart_is_admitted(tmp_path):
    assert refused(tmp_path, "python", ADDS, deadline_s=5.0) == [[]]


@need(Level.L2)
def test_a_function_whose_hidden_cases_leave_a_branch_alone_is_refused(tmp_path):
    solution = "def f(a, b):\n    return max(a, b) if a > 0 else b - 1\n"
    cases = [{"args": [3, 1], "expected": 3}, {"args": [5, 2], "expected": 5}]
    weak = {"entry": "f", "cases": cases, "solution": solution}
    same = {**ADDS, "cases": [{"args": [n, -n], "expected": 0} for n in (1, 2)]}
    assert refused(tmp_path, "python", weak, same, deadline_s=5.0) == [["mutants"], ["scorable"]]


def test_answers_are_admitted(tmp_path):
    assert refused(tmp_path, "exact", {"answer": "Lisbon"}) == [[]]
    assert refused(tmp_path, "numeric", {"answer": 42.5, "rel_tol": 1e-3}) == [[]]


def test_a_tolerance_that_takes_every_number_near_it_is_refused(tmp_path):
    (rules,) = refused(tmp_path, "numeric", {"answer": 42.5, "abs_tol": 500.0})
    assert set(rules) == {"guess", "mutants"}
