"""Does the agent see what it should find out? The task's input against its reference."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tradewind.rewards.admission.leaves import leaves
from tradewind.types.record import Json
from tradewind.types.task import Task

_TEST = re.compile(r"\b(test_\w+|\w+_test)\b")
_NAME = re.compile(r"[A-Za-z_]+(\.[A-Za-z_]+)*\d?")


def leaks(task: Task, oracle: Json | None, shortest: int) -> list[str]:
    """A sentence for each text of the oracle or the reference that stands in the input.

    Texts are compared without case, spacing and closing punctuation, as whole words. Those with
    fewer than `shortest` characters prove nothing (a year, a city), nor does a name that is no
    answer (the function that has to be written); a name of a hidden test does.
    """
    seen = normalised(" \n ".join(_texts(task.input)))
    found = []
    answers = list(_texts(oracle or {}))
    for text in dict.fromkeys((*answers, *_texts(task.reference))):
        told = _NAME.fullmatch(text) is not None and text not in answers
        if not told and len(normalised(text)) >= shortest and _within(normalised(text), seen):
            found.append(f"the input holds {_short(text)!r}, which is in the reference")
        for name in sorted(set(_TEST.findall(text))):
            if _within(name.lower(), seen):
                found.append(f"the input names the hidden test {name!r}")
    return list(dict.fromkeys(found))


def normalised(text: str) -> str:
    """Without what does not change the meaning: case, spacing, closing punctuation."""
    return re.sub(r"\s+", " ", text).strip().rstrip(";.?! ").lower()


def _within(text: str, seen: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(text)}(?!\w)", seen) is not None


def _texts(value: Json) -> Iterator[str]:
    """Every text and every key that is a file's name."""
    for path, leaf in leaves(value):
        if isinstance(leaf, str):
            yield leaf
        yield from (str(key) for key in path if isinstance(key, str) and "." in key)


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
