"""Runs a function that nobody has read, on inputs it is given one at a time.

stdin   {"code": str, "entry": str}           once
        {"call": [[arg, ...], {name: arg}]}   plain data, see plain.py
stdout  {"ok": true} | {"value": plain data} | {"raised": [class name, message]}

The code shares this process with us and may do with it what it likes. It can say anything on the
channel; only the right answers do it any good, and they are not here.
"""

from __future__ import annotations

from channel import open_channel  # type: ignore[import-not-found]  # beside this script
from plain import decode, encode  # type: ignore[import-not-found]

TYPE_CHECKING = False  # `typing` itself takes long to import
if TYPE_CHECKING:
    from typing import Any


def load(code: str, entry: str) -> Any:
    """The function called `entry`, which may be dotted (`Solution.solve` of a fresh instance)."""
    module: dict[str, Any] = {"__name__": "candidate", "__builtins__": __builtins__}
    exec(compile(code, "candidate.py", "exec"), module)
    name, *attributes = entry.split(".")
    found = module[name]
    for attribute in attributes:
        found = getattr(found() if isinstance(found, type) else found, attribute)
    return found


def main() -> None:
    """Answer until the parent closes the pipe."""
    questions, answer = open_channel()
    function = None
    for question in questions:
        try:
            if "call" in question:
                args, kwargs = question["call"]
                args = [decode(item) for item in args]
                kwargs = {name: decode(item) for name, item in kwargs.items()}
                said = {"value": encode(function(*args, **kwargs))}  # type: ignore[misc]
            else:
                function = load(question["code"], question["entry"])
                said = {"ok": True}
        except BaseException as error:  # noqa: BLE001  # boundary: anybody's code
            said = {"raised": [type(error).__name__, str(error)[:500]]}
        answer(said)


if __name__ == "__main__":
    main()
