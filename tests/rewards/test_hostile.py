"""What was paid, or stopped the grader, when somebody tried: each once, by its symptom."""

from __future__ import annotations

import itertools
import mmap
import os
import signal
import time
from pathlib import Path

import pytest
from boxes import need
from graded import a_task, opened, verdict

from tradewind.rewards.criteria.checkers import run_checker
from tradewind.rewards.criteria.criterion import Criterion, Evidence, Scope
from tradewind.rewards.criteria.exhibit import Exhibit
from tradewind.rewards.judges.blank import why_blank
from tradewind.rewards.panel import verdict_of
from tradewind.rewards.sandbox import box as boxes
from tradewind.rewards.sandbox import view as views
from tradewind.rewards.sandbox.box import Box
from tradewind.rewards.sandbox.footprint import footprint
from tradewind.rewards.sandbox.inside.plain import decode, encode
from tradewind.rewards.sandbox.level import Level
from tradewind.rewards.signal import Verdict
from tradewind.rewards.strictjson import read_json
from tradewind.types import Outcome
from tradewind.types.episode import Episode

NONSENSE = """
import os
def f(x):
    for number in range(3, 64):
        try:
            os.write(number, b'{"value": {"verdict": 1}}' + bytes([10]))
        except OSError:
            pass
    os._exit(0)
"""
HONEST = "def f(x): return x + 1"


@pytest.fixture(scope="module")
def function():
    signal = opened("python", deadline_s=5.0)
    yield signal
    signal.close()


def with_test(*lines: str) -> dict[str, str]:
    return {"entry": "f", "test": "\n    ".join(("def check(f):", *lines))}


@need(Level.L2)
def test_nonsense_in_a_test_that_forgives_does_not_reach_the_next_candidate(function):
    """The half-done test took the next candidate's test for an answer, and went on with it."""
    forgiving = with_test(
        "for i in range(3):",
        "    try: assert f(i) == i + 1",
        "    except Exception: pass",
        "assert f(3) == 4",
    )
    said = verdict(function, forgiving, code=NONSENSE)
    assert (said.value, said.cause) == (
        0.0,
        "the process answered with something that is no answer, twice",
    )
    assert verdict(function, with_test("assert f(1) == 2"), code=HONEST).value == 1.0


@need(Level.L2)
def test_a_candidate_that_stops_iteration_does_not_end_the_tests_map(function):
    test = with_test("assert all(a == b for a, b in zip(map(f, [1, 2]), [2, 3]))")
    assert verdict(function, test, code="def f(x): raise StopIteration").value == 0.0
    assert verdict(function, test, code=HONEST).value == 1.0


@need(Level.L2)
def test_a_product_that_stops_iteration_does_not_end_the_tests_map():
    signal = opened("pytest", deadline_s=20.0)
    task = {
        "files": {"shop.py": ""},
        "tests": {
            "test_shop.py": "import shop\n"
            "def test_all(): assert all(a == b for a, b in zip(map(shop.f, [1, 2]), [2, 3]))\n"
            "def test_iterator(): assert [n for n in shop.Two()] == [1, 2]\n"
        },
        "expected": ["test_shop.py::test_all", "test_shop.py::test_iterator"],
        "artefacts": ["shop.py"],
    }
    two = "\nclass Two:\n    def __iter__(self): return iter([1, 2])\n"
    try:
        said = verdict(signal, task, files={"shop.py": "def f(x): raise StopIteration" + two})
        assert (said.value, said.evidence["passed"]) == (0.0, 1), said
    finally:
        signal.close()


def test_numbers_that_collide_build_no_set_and_no_dict():
    """Twenty thousand of them held the grader for eight seconds; a megabyte for hours."""
    same = [{"int": hex(k * (2**61 - 1))} for k in range(1000)]
    for data in ({"set": same}, {"frozenset": same}, {"dict": [[key, 1] for key in same]}):
        with pytest.raises(ValueError, match="not plain data"):
            decode(data)
    many = set(range(100_000))
    assert decode(encode(many)) == many


@pytest.mark.parametrize("data", [{"complex": [10**400, 0]}, {"complex": [0, [10**400]]}])
def test_a_number_beyond_all_floats_is_no_plain_data(data):
    with pytest.raises(ValueError, match="not plain data"):
        decode(data)


@pytest.mark.parametrize("answer", ["9" * 400, 10**400, "-" + "9" * 400])
def test_a_whole_number_beyond_all_floats_is_wrong_and_no_crash(answer):
    assert verdict(opened("numeric"), {"answer": 5}, answer=answer).value == 0.0
    assert opened("numeric").check(a_task({"answer": 10**400})) is not None


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '{"a": NaN}', "[1e999]", "-Infinity"])
def test_json_that_readers_disagree_on_is_none(text):
    with pytest.raises(ValueError, match=r"stands twice|is no JSON|too large"):
        read_json(text)


def test_not_a_number_is_within_no_limits_of_a_schema():
    signal = opened("json-schema")
    task = {"schema": {"properties": {"p": {"type": "number", "minimum": 5, "maximum": 6}}}}
    try:
        assert verdict(signal, task, answer={"p": float("nan")}).value == 0.0
        assert verdict(signal, task, answer={"p": 5.5}).value == 1.0
    finally:
        signal.close()


def test_a_cause_made_of_half_characters_can_be_stored():
    """The ledger stopped the grader over it, and the next one met the same rollout."""
    said = Verdict(value=0.0, cause="\ud800\0", evidence={"\ud800": ["\0", 1]})
    assert said.cause == "\\ud800\\0"
    assert Verdict.model_validate_json(said.model_dump_json()) == said


def test_a_signal_that_breaks_on_a_rollout_gives_a_null_and_not_the_end_of_the_grader():
    class Broken:
        def score(self, episode):
            raise OverflowError("int too large")

    outcome = Outcome(status="completed", artefacts={})
    task = a_task({"answer": 1})
    episode = Episode(rollout_id="g000001-r0", task=task, outcome=outcome)
    said = verdict_of(Broken(), episode)
    assert (said.value, said.cause) == (
        None,
        "grader_error: failed 3 times, OverflowError: int too large",
    )


def test_shared_memory_without_a_name_counts():
    """Six processes held a gigabyte under a limit of 256 MiB: the kernel calls it shared."""
    ready, done = os.pipe()
    child = os.fork()
    if child == 0:
        held = mmap.mmap(-1, 32 << 20)
        for page in range(0, 32 << 20, 4096):
            held[page] = 1
        os.write(done, b"1")
        signal.pause()
        time.sleep(60)
    try:
        os.read(ready, 1)
        assert footprint(child) >= 32 << 20
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(done)


@need(Level.L2)
@pytest.mark.parametrize("packages", [False, True])
def test_what_is_installed_in_the_systems_python_is_not_in_sight_unless_asked_for(packages):
    """A task set installed beside Python could be read, answers and all."""
    folders = [str(folder) for folder in views.package_folders()]
    look = f"import os\ndef f(x): return [len(os.listdir(p)) for p in {folders!r}]"
    signal = opened("python", packages=packages)
    try:
        seen = {"entry": "f", "cases": [{"args": [1], "expected": [0] * len(folders)}]}
        wanted = set(views.installed_packages()) & set(views.package_folders())
        said = verdict(signal, seen, code=look)
        assert said.value == (0.0 if packages and wanted else 1.0), said
    finally:
        signal.close()


def test_a_package_folder_that_was_asked_for_is_bound_over_the_hidden_one(monkeypatch, tmp_path):
    """Where this package itself is installed in such a folder, its scripts are shown again."""
    monkeypatch.setattr(views, "package_folders", lambda: (views.INSIDE.parents[3],))
    argv = Box(Level.L2, packages=[tmp_path]).command(views.INSIDE / "candidate.py").argv
    hidden, shown = str(views.INSIDE.parents[3]), str(views.INSIDE)
    words = list(itertools.pairwise(argv))
    last = max(i for i, pair in enumerate(words) if pair == ("--ro-bind", shown))
    assert words.index(("--tmpfs", hidden)) < last < words.index(("--remount-ro", hidden))


@need(Level.L2)
@pytest.mark.parametrize("as_root", [True, False])
def test_only_scratch_folders_of_a_bounded_size_can_be_written(monkeypatch, as_root):
    """Without root the box's root folder and /dev were memory without a limit."""
    if not as_root:
        monkeypatch.setattr(boxes, "unused_uid", lambda: None)
    names = {"/", "/scratch", *(str(path) for path in Path("/").iterdir() if path.name != "proc")}
    look = f"""
import os
def f(x):
    folders = {sorted(names)!r}
    return set(p for p in folders if os.access(p, os.W_OK) and not os.path.islink(p))
"""
    scratch = {"set": ["/scratch", "/tmp"]}
    signal = opened("python")
    try:
        seen = {"entry": "f", "cases": [{"args": [1], "expected": scratch}]}
        assert verdict(signal, seen, code=look).value == 1.0
    finally:
        signal.close()


@pytest.mark.parametrize("work", ["\u200b\u2060", "\u3164\u3164", "so\u00adlution\u200b:"])
def test_what_nobody_can_see_is_no_work(work):
    assert why_blank(Exhibit(shown={"reply": work})) is not None


def test_numbers_are_compared_as_written_in_one_way():
    reply = Evidence(scope=Scope.ANSWER, artefact="reply")
    rows = Evidence(scope=Scope.STATE, artefact="rows")
    criterion = Criterion(
        id="numbers",
        question="Does every number of the reply stand in the rows?",
        evidence=(reply, rows),
        checker="numbers-in-evidence",
    )
    shown = {"reply": "1,200.50 and -0", "rows": "1200.5, 0 and 7"}
    assert run_checker(criterion, Exhibit(shown=shown))[0] == criterion.levels[-1]
    shown["reply"] = "1200.51"
    assert run_checker(criterion, Exhibit(shown=shown))[0] == criterion.levels[0]
