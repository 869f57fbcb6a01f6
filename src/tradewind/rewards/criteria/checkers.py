"""Deterministic checks that make a judge unnecessary, by the name a criterion gives.

    checker = "numbers-in-evidence"     every number of the work stands in the other evidence
    checker = "states:12"               the work holds this text
    checker = "max-words:80"            the work is not longer
    checker = "json"                    the work is JSON

There are no regular expressions among them: an agent could find the work on which one never ends.
What takes more than this is a signal of your own, which runs in a child with a deadline.

The answer is the highest level of the scale where the check holds, else the lowest.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal

from tradewind.rewards.criteria.criterion import Criterion
from tradewind.rewards.criteria.exhibit import Exhibit
from tradewind.rewards.strictjson import read_json

MOST_CHARS = 100_000
"""Of work that is searched; longer work fails every check."""

_NUMBER = re.compile(r"(?<![\w.])-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?!\w)")

Check = Callable[[Exhibit, str], tuple[bool, str]]


def run_checker(criterion: Criterion, exhibit: Exhibit) -> tuple[str, str]:
    """(level, why); the checker's name must have been found good by `fault_of`."""
    assert criterion.checker is not None
    name, _, argument = criterion.checker.partition(":")
    if len(exhibit.work) > MOST_CHARS:
        return criterion.levels[0], f"the work has more than {MOST_CHARS} characters"
    holds, why = CHECKERS[name](exhibit, argument)
    return criterion.levels[-1 if holds else 0], why


def fault_of(checker: str) -> str | None:
    """Why there is no such checker, or None."""
    name, _, argument = checker.partition(":")
    if name not in CHECKERS:
        return f"there is no checker {name!r}; there are {', '.join(CHECKERS)}"
    if (name in _WITH_ARGUMENT) != bool(argument):
        return f'write "{name}:..."' if name in _WITH_ARGUMENT else f'write "{name}" alone'
    if name == "max-words" and not argument.isdigit():
        return f"{argument!r} is no number of words"
    return None


def _numbers_in_evidence(exhibit: Exhibit, _: str) -> tuple[bool, str]:
    others = list(exhibit.shown.values())[1:]
    known = {number for text in others for number in _numbers(text)}
    said = _numbers(exhibit.work)
    strange = [number for number in said if number not in known]
    if strange:
        return False, f"{strange[0]} stands in none of the other evidence"
    return bool(said), f"{len(said)} numbers, all of them in the other evidence"


def _states(exhibit: Exhibit, wanted: str) -> tuple[bool, str]:
    there = wanted.casefold() in exhibit.work.casefold()
    return there, f"{wanted!r} is {'' if there else 'not '}there"


def _max_words(exhibit: Exhibit, most: str) -> tuple[bool, str]:
    words = len(exhibit.work.split())
    return words <= int(most), f"{words} words"


def _json(exhibit: Exhibit, _: str) -> tuple[bool, str]:
    try:
        read_json(exhibit.work)
    except (ValueError, RecursionError) as error:
        return False, f"not JSON ({error})"
    return True, "JSON"


def _numbers(text: str) -> list[str]:
    """In one way of writing, so that 1,200.0 and 1200 are the same, and no set of them is slow:
    hashes of numbers can be made to collide."""
    found = (Decimal(number.replace(",", "")) for number in _NUMBER.findall(text))
    return [str((number + 0).normalize()) for number in found]


CHECKERS: dict[str, Check] = {
    "numbers-in-evidence": _numbers_in_evidence,
    "states": _states,
    "max-words": _max_words,
    "json": _json,
}
_WITH_ARGUMENT = {"states", "max-words"}
