"""The linter: each rule finds what it is for, and lets a well-written criterion pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from tradewind.rewards.criteria.file import read_rubric
from tradewind.rewards.criteria.lint import RULES, lint

DESK = Path(__file__).parents[2] / "examples/orderdesk/criteria.toml"
HEAD = 'rubric = "r"\nversion = "1"\n'
EXAMPLES = 'good = ["12 open orders", "No order"]\nbad = ["Many", "It depends"]\n'
LESS = '[[criteria]]\nid = "less"\nquestion = "Does it apologise?"\nweight = -1\n' + EXAMPLES


def rules(tmp_path: Path, body: str, *, rest: str = LESS) -> set[tuple[str, str | None]]:
    path = tmp_path / "r.toml"
    path.write_text(f'{HEAD}[[criteria]]\nid = "c"\n{body}\n{rest}')
    return {(finding.rule, finding.criterion) for finding in lint(read_rubric(path))}


def asking(question: str) -> str:
    return f'question = "{question}"\n{EXAMPLES}'


def test_a_well_written_file_has_no_findings(tmp_path: Path) -> None:
    assert rules(tmp_path, asking("Does the answer name a city?")) == set()
    assert lint(read_rubric(DESK)) == []


@pytest.mark.parametrize(
    ("question", "rule"),
    [
        ("Does the answer name a city and a day?", "compound"),
        ("Does the answer name a city? Does it name a day?", "compound"),
        ("Does the answer name the city clearly?", "vague"),
        ("Is the answer sufficiently short?", "vague"),
        ("Does the agent understand the request?", "unobservable"),
        ("Does it match the reference answer?", "reference-only"),
        ("The answer names a city.", "no-question"),
        ("Which city does the answer name?", "no-question"),
        ("Does the answer mention the topic of the question?", "echo"),
        (f"Does the answer name {'one more ' * 20}city?", "long"),
    ],
)
def test_a_question_that_is_hard_to_judge(tmp_path: Path, question: str, rule: str) -> None:
    assert rules(tmp_path, asking(question)) == {(rule, "c")}


ASK = 'question = "Does the answer name a city?"\n'


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (ASK, {"few-examples"}),
        (ASK + 'good = ["Oslo", "Rome"]', {"few-examples", "constant"}),
        (ASK + 'good = ["Oslo", "Rome"]\nbad = ["Oslo", "12"]', {"contradiction"}),
        (ASK + 'good = ["Oslo", ""]\nbad = ["x", "12"]', {"empty"}),
        (ASK + 'good = ["Oslo", {answer = "Where?", task = "Where?"}]\nbad = ["x", "y"]', {"echo"}),
        (ASK + 'good = ["Oslo", "Rome"]\nbad = ["x", {answer = "y", level = "nope"}]', {"level"}),
        (ASK + 'checker = "states:Oslo"\ngood = ["Oslo", "Rome"]\nbad = ["x", "y"]', {"checker"}),
        (ASK + 'checker = "max-words:3"\ngood = ["Oslo", "Rome"]\nbad = ["a b c d", "a b c d e"]',
         {"empty"}),
        (ASK + EXAMPLES + 'allow = ["compoud"]', {"allow"}),
    ],
)  # fmt: skip
def test_examples_and_checkers_that_tell_nothing(tmp_path: Path, body: str, expected) -> None:
    assert {rule for rule, _ in rules(tmp_path, body)} == expected


def test_a_finding_can_be_allowed(tmp_path: Path) -> None:
    body = asking("Does the answer name a city and a day?")
    assert rules(tmp_path, body + 'allow = ["compound"]') == set()
    assert rules(tmp_path, body + 'allow = ["vague"]') == {("compound", "c")}


def test_two_criteria_that_ask_the_same(tmp_path: Path) -> None:
    again = '[[criteria]]\nid = "d"\n' + asking("Does the answer name a city there?")
    found = rules(tmp_path, asking("Does the answer name a city?"), rest=again + LESS)
    assert found == {("duplicate", "d")}


def test_a_file_that_only_wants_more(tmp_path: Path) -> None:
    body = asking("Does the answer name a city?")
    assert rules(tmp_path, body, rest="") == {("all-positive", None)}
    assert rules(tmp_path, body + 'allow = ["all-positive"]', rest="") == set()


def test_what_saying_nothing_satisfies(tmp_path: Path) -> None:
    body = 'question = "Does the answer boast?"\nkind = "must-not"\npolarity = "negative"\n'
    assert rules(tmp_path, body + EXAMPLES, rest="") == {("empty", "c")}


def test_every_rule_is_described_and_found_here() -> None:
    source = Path(__file__).read_text()
    assert all(f'"{rule}"' in source for rule in RULES)
