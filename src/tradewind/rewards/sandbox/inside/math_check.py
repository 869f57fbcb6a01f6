"""Are two mathematical answers the same? math-verify says it, in a child that can be killed.

Its own time limits use signals and fail outside a main thread; here the parent's deadline is the
only one.

stdin   {"gold": str, "answer": str | null}
stdout  {"parsed": bool, "same": bool}       whether `gold` can be read; whether `answer` equals it
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from channel import open_channel  # type: ignore[import-not-found]  # beside this script
from math_verify import parse, verify

_MARKS = ("$", "\\boxed", "\\(", "\\[")
"""What tells math-verify where the mathematics is. Without one it may read a part only: the last
number of a polynomial, say."""


def read_gold(text: str) -> list[Any]:
    """The task's own answer, all of it."""
    marked = text if any(mark in text for mark in _MARKS) else f"${text}$"
    return list(parse(marked, parsing_timeout=None))


def readings(text: str) -> Iterator[list[Any]]:
    """What an answer may mean: a sentence with a result in it, or a bare formula."""
    yield parse(text, parsing_timeout=None)
    if not any(mark in text for mark in _MARKS):
        yield parse(f"${text}$", parsing_timeout=None)


def main() -> None:
    """Answer until the parent closes the pipe."""
    logging.disable()  # it warns that time limits are off, each time
    questions, answer = open_channel()
    for question in questions:
        gold = read_gold(question["gold"])
        said = question["answer"]
        same = said is not None and any(
            bool(verify(gold, got, timeout_seconds=None)) for got in readings(said) if got
        )
        answer({"parsed": bool(gold), "same": bool(gold) and same})


if __name__ == "__main__":
    main()
