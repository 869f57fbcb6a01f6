"""What a criterion's answers are worth, and which criteria contradict themselves."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tradewind.rewards.criteria.criterion import Criterion, Evidence, Rubric

ANSWER = (Evidence(scope="answer"),)


def criterion(**fields: Any) -> Criterion:
    return Criterion(**{"id": "c", "question": "Is it so?", "evidence": ANSWER, **fields})


@pytest.mark.parametrize(
    ("fields", "values"),
    [
        ({}, {"no": 0.0, "yes": 1.0}),
        ({"polarity": "negative", "kind": "must-not"}, {"no": 1.0, "yes": 0.0}),
        ({"weight": -1.0}, {"no": 0.0, "yes": 1.0}),
        ({"levels": ("none", "some", "all")}, {"none": 0.0, "some": 0.5, "all": 1.0}),
    ],
)
def test_an_answer_is_worth_its_place_on_the_scale(fields, values) -> None:
    found = criterion(**fields)
    assert {level: found.value(level) for level in found.levels} == values


def test_a_negative_weight_wants_a_low_answer() -> None:
    assert criterion(weight=-1.0).is_good("no")
    assert not criterion(weight=-1.0).is_good("yes")
    assert criterion(polarity="negative").is_good("no")
    assert criterion().is_good("yes")


def test_what_serves_the_policy_least() -> None:
    assert criterion().worst == 0.0
    assert criterion(polarity="negative", kind="must-not").worst == 0.0
    assert criterion(weight=-2.0).worst == 1.0, "of a negative weight the whole is taken off"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"weight": 0.0}, "never count"),
        ({"weight": float("nan")}, "finite"),
        ({"kind": "must", "weight": -1.0}, "gate"),
        ({"kind": "must-not"}, "polarity"),
        ({"levels": ("yes", "Yes")}, "same name"),
        ({"levels": ("yes",)}, "at least 2"),
        ({"evidence": ()}, "at least 1"),
        ({"evidence": (*ANSWER, *ANSWER)}, "same name"),
        ({"id": "Not an id"}, "pattern"),
    ],
)
def test_a_criterion_that_contradicts_itself_is_refused(fields, says) -> None:
    with pytest.raises(ValidationError, match=says):
        criterion(**fields)


def test_files_and_states_are_named_and_turns_are_not() -> None:
    with pytest.raises(ValidationError, match="name the artefact"):
        Evidence(scope="state")
    with pytest.raises(ValidationError, match="has no name"):
        Evidence(scope="turns", artefact="x")
    assert (
        Evidence(scope="turns").needs_turns
        and not Evidence(scope="file", artefact="a.md").needs_turns
    )


def test_only_what_can_change_a_verdict_changes_the_key() -> None:
    old = Rubric(name="r", version="1", criteria=(criterion(),))
    same = Rubric(
        name="r", version="1", criteria=(criterion(author="Ana", weight=3), criterion(id="d"))
    )
    other = Rubric(name="r", version="2", criteria=(criterion(),))
    assert old.key(old["c"]) == same.key(same["c"]) != other.key(other["c"])
    assert old.digest != same.digest
    asks = criterion(question="Is it not so?")
    assert old.key(old["c"]) != old.key(asks)
