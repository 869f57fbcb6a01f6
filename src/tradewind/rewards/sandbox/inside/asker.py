"""Runs a task's own test, whose candidate lives in another process and is asked from here.

stdin   {"test": str, "entry": str}               source with `check(candidate)`
        {"value": plain data} | {"raised": ...}   to each call
stdout  {"call": [[arg, ...], {name: arg}]}       the test called the candidate
        {"done": true, "calls": int}              the test ended, having called so often
        {"failed": str, "calls": int}             it raised

Only the task's own code runs here, and what it sees of the candidate is plain data.
"""

from __future__ import annotations

import builtins

from channel import open_channel  # type: ignore[import-not-found]  # beside this script
from plain import decode, encode  # type: ignore[import-not-found]

TYPE_CHECKING = False  # `typing` itself takes long to import
if TYPE_CHECKING:
    from typing import Any


_ENDS_LOOPS = ("StopIteration", "StopAsyncIteration")
"""Raised through a `map` of the test they would end it, as if every answer had been right."""


class CandidateRaised(Exception):
    """The candidate raised what is no exception of Python's own, or one that would end a loop."""


def raised(name: str, message: str) -> Exception:
    """An exception of the same built-in class, so that a test may expect it."""
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception) and name not in _ENDS_LOOPS:
        try:
            return kind(message)
        except TypeError:
            pass
    return CandidateRaised(f"{name}: {message}")


def main() -> None:
    """Run one test after the other until the parent closes the pipe."""
    questions, answer = open_channel()
    for question in questions:
        calls = 0

        def candidate(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            named = {name: encode(item) for name, item in kwargs.items()}
            answer({"call": [[encode(item) for item in args], named]})
            said = next(questions)
            if "raised" in said:
                raise raised(*said["raised"])
            return decode(said["value"])

        try:
            module: dict[str, Any] = {"__name__": "test", "__builtins__": __builtins__}
            exec(compile(question["test"], "test.py", "exec"), module)
            module[question["entry"]] = candidate  # tests may call it by its own name, too
            module["check"](candidate)
            ended: dict[str, Any] = {"done": True, "calls": calls}
        except Exception as error:  # noqa: BLE001  # boundary: the task's test failed
            ended = {"failed": f"{type(error).__name__}: {error}"[:500], "calls": calls}
        answer(ended)


if __name__ == "__main__":
    main()
