"""What deterministic verifiers accept, what they refuse, and whose fault it is."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from boxes import need
from graded import a_task, opened, verdict

from tradewind.rewards import library
from tradewind.rewards.registry import check_tasks
from tradewind.rewards.sandbox import measure as measuring
from tradewind.rewards.sandbox.level import Level
from tradewind.rewards.sandbox.measure import Measured
from tradewind.rewards.signal import VerifierFailed
from tradewind.types import UserError

PACKAGES = os.environ.get("TRADEWIND_ENVS_PACKAGES")
ADD = {"entry": "f", "cases": [{"args": [1], "expected": 2}, {"args": [5], "expected": 6}]}
NEXT = {"cases": [{"stdin": "1", "stdout": "2"}, {"stdin": "5", "stdout": "6\n"}]}


@pytest.fixture
def use():
    held = []

    def open_it(name, **options):
        held.append(opened(name, **options))
        return held[-1]

    yield open_it
    for signal in held:
        signal.close()


@pytest.mark.parametrize("name", ["python", "stdio"])
def test_code_of_an_agent_is_not_run_in_weaker_walls_than_asked_for(monkeypatch, name):
    why = Measured(Level.L1, "bubblewrap is not installed (apt-get install bubblewrap)")
    monkeypatch.setattr(measuring, "measure", lambda: why)
    monkeypatch.setattr(measuring, "no_kernel", lambda: "gVisor is not installed")
    monkeypatch.setattr(shutil, "which", lambda program: None)
    with pytest.raises(
        UserError, match=rf"'{name}' needs isolation L2, and this machine reaches L1"
    ):
        opened(name)


@need(Level.L2)
def test_a_functions_answers_are_compared_type_by_type(use):
    signal = use("python")
    assert verdict(signal, ADD, code="def f(x): return x + 1").value == 1.0
    assert verdict(signal, ADD, code="def f(x): return x + 1.0").value == 0.0
    near = ADD | {"abs_tol": 1e-3}
    assert verdict(signal, near, code="def f(x): return x + 1.0001").value == 1.0
    half = verdict(signal, ADD, code="def f(x): return 2")
    assert half.value == 0.0 and half.evidence == {"cases": 2, "right": 1}
    assert verdict(use("python", partial=True), ADD, code="def f(x): return 2").value == 0.5


@need(Level.L2)
def test_prints_threads_and_daemons_of_right_code_do_no_harm(use):
    code = """
import os, sys, threading
def f(x):
    print("noise"); sys.stderr.write("noise"); sys.stdin.read()
    found = []
    thread = threading.Thread(target=lambda: found.append(x + 1)); thread.start(); thread.join()
    if os.fork() == 0:
        os.setsid()
        import time; time.sleep(600)
    return found[0]
"""
    assert verdict(use("python"), ADD, code=code).value == 1.0
    program = code + "\nx = int(sys.stdin.readline())\nos.fork() or __import__('time').sleep(600)\n"
    program += "print(x + 1)\nsys.exit(3)"
    program = program.replace('print("noise"); sys.stderr', "sys.stderr")
    assert verdict(use("stdio", deadline_s=20.0), NEXT, code=program).value == 1.0


@need(Level.L2)
def test_state_is_kept_between_the_calls_of_one_verdict_and_never_between_verdicts(use):
    code = "seen = []\ndef f(x):\n    seen.append(x)\n    return len(seen) + 1"
    count = {"entry": "f", "cases": [{"args": [0], "expected": 2}, {"args": [0], "expected": 3}]}
    signal = use("python")
    assert [verdict(signal, count, code=code).value for _ in range(2)] == [1.0, 1.0]


@need(Level.L2)
def test_the_tasks_own_test_sees_plain_data_and_exceptions(use):
    test = """
def check(candidate):
    assert candidate(1) == (1, {"a"})
    try:
        candidate(None)
    except ValueError as error:
        assert str(error) == "none"
    else:
        raise AssertionError("it should refuse None")
"""
    right = "def f(x):\n    if x is None: raise ValueError('none')\n    return (1, {'a'})"
    task = {"entry": "f", "test": test}
    assert verdict(use("python"), task, code=right).value == 1.0
    wrong = verdict(use("python"), task, code="def f(x): return (1, {'a'})")
    assert wrong.value == 0.0 and "should refuse None" in wrong.cause


@need(Level.L2)
def test_a_test_that_asks_nothing_is_the_tasks_fault(use):
    task = {"entry": "f", "test": "def check(candidate): pass"}
    with pytest.raises(VerifierFailed, match="never calls"):
        verdict(use("python"), task, code="def f(): pass")


@need(Level.L2)
def test_outputs_are_compared_line_by_line(use):
    signal = use("stdio")
    assert verdict(signal, NEXT, code="print(int(input()) + 1, '  \\n\\n')").value == 1.0
    assert verdict(signal, NEXT, code="print(); print(int(input()) + 1)").value == 0.0
    near = {"abs_tol": 0.01, "cases": [{"stdin": "", "stdout": "x = 1.5"}]}
    assert verdict(signal, near, code="print('x = 1.501')").value == 1.0
    assert verdict(signal, near, code="print('x = 1.52')").value == 0.0
    assert verdict(signal, near, code="print('x = nan')").value == 0.0


@need(Level.L2)
def test_what_an_agent_did_not_report_is_graded_zero(use):
    for reported in (None, "", 7, ["def f(x): return x + 1"]):
        assert verdict(use("python"), ADD, code=reported).value == 0.0
    assert (
        verdict(use("python", artefact="solution"), ADD, solution="f = lambda x: x + 1").value == 1
    )


@pytest.mark.parametrize(
    ("name", "reference", "says"),
    [
        ("python", {"cases": [{"args": [1], "expected": 1}]}, "entry"),
        ("python", {"entry": "f"}, "cases"),
        ("python", {"entry": "f", "test": "def check("}, "does not compile"),
        ("python", {"entry": "f", "cases": ADD["cases"], "test": "def check(c): pass"}, "one of"),
        ("python", {"entry": "f", "cases": [{"expected": True}, {"expected": True}]}, "constant"),
        ("stdio", {"cases": []}, "no .cases"),
        ("stdio", {"cases": [{"stdin": "1"}]}, "stdout"),
        ("stdio", {"cases": [{"stdin": "1", "stdout": "YES"}] * 2}, "constant"),
        ("exact", {}, "no .answer"),
        ("exact", {"answer": " "}, "no .answer"),
        ("numeric", {"answer": "1"}, "finite number"),
        ("numeric", {"answer": True}, "finite number"),
        ("numeric", {"answer": float("nan")}, "finite number"),
        ("math", {"answer": ""}, "answer.: it is empty"),
        ("json-schema", {}, "no .schema"),
        ("json-schema", {"schema": {"type": "strng"}}, "schema is wrong"),
    ],
)
def test_a_task_that_cannot_be_scored_is_named_before_anything_runs(use, name, reference, says):
    if name in ("python", "stdio") and not measuring.reaches(Level.L2):
        pytest.skip(f"isolation is {measuring.report()}")
    with pytest.raises(UserError, match=rf"t-0001.*{says}"):
        check_tasks(use(name), [a_task(reference)])


def test_exact_answers(use):
    signal = use("exact")
    assert verdict(signal, {"answer": "Paris"}, answer=" Paris\n").value == 1.0
    assert verdict(signal, {"answer": "Paris"}, answer="paris").value == 0.0
    assert verdict(use("exact", fold_case=True), {"answer": "Paris"}, answer="paris").value == 1.0
    assert verdict(signal, {"answer": 1}, answer=True).value == 0.0
    assert verdict(signal, {"answer": "a", "accepted": ["b"]}, answer="b").value == 1.0
    assert verdict(signal, {"answer": [1, {"x": 2}]}, answer=[1, {"x": 2}]).value == 1.0


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        (42, 1.0),
        ("42", 1.0),
        (" 42.0 ", 1.0),
        ("4.2e1", 1.0),
        (42.01, 0.0),
        ("1_0", 0.0),
        (True, 0.0),
        ("0x2a", 0.0),
        ("42 apples", 0.0),
    ],
)
def test_numbers_are_read_strictly(use, answer, value):
    assert verdict(use("numeric"), {"answer": 42}, answer=answer).value == value
    assert verdict(use("numeric"), {"answer": 42, "abs_tol": 1e-6}, answer=answer).value == value


def test_formulas(use):
    signal = use("math")
    for answer in ("\\frac{1}{2}", "0.5", "$\\frac12$", "so it is \\boxed{\\tfrac{2}{4}}", "1/2"):
        assert verdict(signal, {"answer": "\\frac{1}{2}"}, answer=answer).value == 1.0, answer
    assert verdict(signal, {"answer": "x^2 - 1"}, answer="$(x-1)(x+1)$").value == 1.0
    assert verdict(signal, {"answer": "x^2 - 1"}, answer="$(x-1)^2$").value == 0.0


def test_a_pattern_that_never_ends_is_ended(use):
    """The schema is the task's, the text is the agent's: together they may take forever."""
    signal = use("json-schema", deadline_s=0.3)
    task = {"schema": {"type": "string", "pattern": "^(a+)+$"}}
    assert verdict(signal, task, answer='"aaa"').value == 1.0
    late = verdict(signal, task, answer='"' + "a" * 40 + '!"')
    assert late.value == 0.0 and "no answer within 0.3 s, nor within 0.6 s" in late.cause
    assert verdict(signal, task, answer='"aaa"').value == 1.0


def test_a_schema_that_points_elsewhere_is_the_tasks_fault(use):
    task = {"schema": {"$ref": "https://example.invalid/schema.json"}}
    with pytest.raises(VerifierFailed, match="refers to what is not in it"):
        verdict(use("json-schema"), task, answer="{}")


def test_a_library_that_is_not_installed_is_a_sentence(monkeypatch):
    monkeypatch.setattr(library.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"needs a package.*pip install 'tradewind\[verify\]'"):
        opened("math")


@pytest.mark.skipif(not PACKAGES, reason="make test names the folder of the real packages")
def test_puzzles_are_made_again_and_scored_by_their_own_dataset(use, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(PACKAGES).resolve())])
    signal, lenient = use("reasoning-gym"), use("reasoning-gym", partial=True)
    reference = {"dataset": "chain_sum", "seed": 5, "index": 4}
    oracle = signal.oracle(a_task(reference))
    assert verdict(signal, reference, **oracle).value == 1.0
    long_winded = {"answer": f"I think it is {oracle['answer']}."}
    assert verdict(signal, reference, **long_winded).value == 0.0
    assert 0 < verdict(lenient, reference, **long_winded).value < 1, "a little, for holding it"
    assert "another question" in signal.check(a_task(reference, question="What is 1 + 1?"))
    with pytest.raises(UserError, match="t-0001"):
        check_tasks(signal, [a_task(reference | {"dataset": "no such thing"})])
