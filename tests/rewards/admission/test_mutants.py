"""Wrong answers near a right one, by language."""

from __future__ import annotations

import ast

import pytest

from tradewind.rewards.admission.leaves import Language, language_of
from tradewind.rewards.admission.mutants import mutants, value_mutants
from tradewind.rewards.admission.mutants_python import constant_programs, python_mutants
from tradewind.rewards.admission.mutants_sql import sql_mutants

MEDIAN = """
def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2 == 1:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2
"""


def test_sql_mutants_leave_the_inside_of_texts_alone():
    found = [sql for _, sql in sql_mutants("select a from t where b = 'max (x) and y < 3'")]
    assert "select a from t where b <> 'max (x) and y < 3'" in found
    assert "select a from t where b = 'max (x) and y < 4'" in found  # the text as a whole
    assert not [sql for sql in found if "min" in sql or " or " in sql or ">=" in sql]


@pytest.mark.parametrize(
    ("sql", "mutant"),
    [
        ("select max(day) from orders", "select min(day) from orders"),
        ("select count(*) from orders", "select 1 + count(*) from orders"),
        ("select a from t order by b desc limit 3", "select a from t order by b asc limit 3"),
        ("select a from t order by b desc limit 3", "select a from t order by b desc limit 4"),
        ("select a from t order by b desc limit 3", "select a from t order by b desc"),
        ("select a from t where b > 3 and c = 'x'", "select a from t where b <= 3 and c = 'x'"),
        ("select a from t where b > 3 and c = 'x'", "select a from t where b > 3 or c = 'x'"),
        ("select sum(a * b) from t", "select sum(a + b) from t"),
        ("select distinct a from t", "select  a from t"),
    ],
)
def test_each_sql_operator_makes_its_error(sql, mutant):
    assert mutant in [found for _, found in sql_mutants(sql)]


def test_every_python_mutant_is_a_program_that_differs_in_one_place():
    found = [source for _, source in python_mutants(MEDIAN)]
    assert len(found) == len(set(found)) >= 8
    assert all(ast.dump(ast.parse(source)) != ast.dump(ast.parse(MEDIAN)) for source in found)


def test_programs_that_return_a_constant_keep_the_name_that_is_called():
    found = dict(constant_programs(MEDIAN))
    scope: dict = {}
    exec(found["returns 0"], scope)
    assert scope["median"]([1, 2, 3]) == 0
    assert list(constant_programs("x = 1")) == []


@pytest.mark.parametrize(
    ("value", "others"),
    [
        (42, [43, -42, 420]),
        (0, [1]),
        ("42", ["43", "-42", "420"]),
        ("2.5", ["3.5", "-2.5", "25.0"]),
        (True, [False]),
        ("Oslo", ["Osl", "not Oslo", "Oslo or Osl"]),
        ("North Oslo", ["North Osl", "North", "Oslo North"]),
        ("", []),
        (None, []),
    ],
)
def test_a_wrong_value_has_the_type_of_the_right_one(value, others):
    assert [other for _, other in value_mutants(value)][: len(others) or None] == others


def test_a_cut_of_the_mutants_still_holds_every_leaf_and_several_operators():
    oracle = {
        "sql": "select max(a) from t where b = 'x' and c > 2",
        "n": 7,
        "files": {"a.py": MEDIAN},
    }
    found = mutants(oracle, 9)
    assert {mutant.done.partition(":")[0] for mutant in found} == {"sql", "n", "files.a.py"}
    assert all(mutant.artefacts != oracle for mutant in found)
    assert len({str(mutant.artefacts) for mutant in found}) == 9


def test_a_word_that_could_be_python_is_a_value():
    assert language_of(("answer",), "Oslo") is Language.VALUE
    assert language_of(("answer",), "select") is Language.VALUE
    assert language_of(("code",), "x = 1") is Language.PYTHON
    assert language_of(("code",), "x = = 1") is Language.VALUE
    assert language_of(("files", "a.py"), "x = 1") is Language.PYTHON
    assert language_of(("reply",), "select a from t") is Language.SQL
