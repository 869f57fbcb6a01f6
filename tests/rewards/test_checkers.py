"""Deterministic checks of criteria."""

from __future__ import annotations

import pytest

from tradewind.rewards.criteria.checkers import MOST_CHARS, fault_of, run_checker
from tradewind.rewards.criteria.criterion import Criterion, Evidence
from tradewind.rewards.criteria.exhibit import Exhibit


def holds(checker: str, work: str, rows: str = "") -> bool:
    evidence = (Evidence(scope="answer"), Evidence(scope="state", artefact="rows"))
    criterion = Criterion(id="c", question="Is it?", evidence=evidence, checker=checker)
    level, _ = run_checker(criterion, Exhibit(shown={"answer": work, "rows": rows}))
    return level == "yes"


@pytest.mark.parametrize(
    ("work", "rows", "expected"),
    [
        ("12 orders", "[[12]]", True),
        ("12.0 orders", "[[12]]", True),
        ("1,204.50 in May", "[[1204.5]]", True),
        ("-3 degrees", "[[-3]]", True),
        ("3 degrees", "[[-3]]", False),
        ("13 orders", "[[12]]", False),
        ("12 orders, 3 late", "[[12]]", False),
        ("2 and 1", "[[1, 2]]", True),
        ("many", "[[12]]", False),
        ("order A12", "[[12]]", False),
    ],
)
def test_numbers_of_the_work_stand_in_the_other_evidence(work, rows, expected) -> None:
    assert holds("numbers-in-evidence", work, rows) is expected


@pytest.mark.parametrize(
    ("checker", "good", "bad"),
    [
        ("states:porto", "From Porto.", "From Oslo."),
        ("max-words:3", "one two three", "one two three four"),
        ("json", '{"a": 1}', "{'a': 1}"),
    ],
)
def test_each_check_has_a_work_that_passes_and_one_that_fails(checker, good, bad) -> None:
    assert holds(checker, good) and not holds(checker, bad)


def test_work_without_end_is_not_searched() -> None:
    assert not holds("states:x", "x" * (MOST_CHARS + 1))
    assert not holds("json", "[" * MOST_CHARS)


@pytest.mark.parametrize(
    "checker", ["", "stats:x", "states", "states:", "json:x", "max-words:many"]
)
def test_a_checker_that_does_not_exist_has_a_fault(checker: str) -> None:
    assert fault_of(checker)
