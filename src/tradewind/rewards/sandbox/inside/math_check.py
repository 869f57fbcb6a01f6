"""Are two mathematical answers the same? math-verify says it, in a child that can be killed.

Its own time limits use signals and fail outside a main thread; here the parent's deadline is the
only one.

stdin   {"gold": str, "answer": str | null}
stdout  {"parsed": bool, "same": bool}       whether `gold` can be read; whether `answer` equals it
"""

from __future__ import annotations

from channel import open_channel  # type: ignore[import-not-found]  # beside this script
from math_verify import parse, verify


def main() -> None:
    """Answer until the parent closes the pipe."""
    questions, answer = open_channel()
    for question in questions:
        gold = parse(question["gold"], parsing_timeout=None)
        said = question["answer"]
        same = False
        if said is not None and gold:
            got = parse(said, parsing_timeout=None)
            same = bool(got) and verify(gold, got, timeout_seconds=None)
        answer({"parsed": bool(gold), "same": bool(same)})


if __name__ == "__main__":
    main()
