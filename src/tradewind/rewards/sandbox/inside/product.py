"""Holds a product that an agent changed, and lets tests use it from another process.

stdin   {"files": {path: text}, "roots": [folder]}                      once
        {"op": "import", "name": module}
        {"op": "get" | "set" | "del", "of": id, "name": str, "value"?: data}
        {"op": "call", "of": id, "args": [data], "kwargs": {name: data}}
        {"op": "special", "of": id, "name": "__len__", "args": [data]}
stdout  {"ok": true} | {"value": data} | {"raised": {"class": {...}, "args": data, "text": str}}

Data is plain (plain.py), or {"ref": {...}} for an object that stays here. Nothing that is right or
wrong is known here; the tests are elsewhere.
"""

from __future__ import annotations

import importlib
import os
import sys

from channel import open_channel  # type: ignore[import-not-found]  # beside this script
from plain import decode, encode  # type: ignore[import-not-found]

TYPE_CHECKING = False  # `typing` itself takes long to import
if TYPE_CHECKING:
    from typing import Any

_BUILT_IN = ("builtins", "exceptions")


class Kept:
    """Objects that tests hold by a number; the same object keeps its number."""

    def __init__(self) -> None:
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}

    def number(self, value: Any) -> int:
        """The object's number."""
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._objects)
            self._objects.append(value)
        return self._numbers[id(value)]

    def object(self, number: int) -> Any:
        """The object of that number."""
        return self._objects[number]

    def write(self, value: Any) -> dict[str, Any]:
        """A reference to an object that is not plain data."""
        if isinstance(value, type):
            return {"ref": self.klass(value)}
        return {"ref": {"id": self.number(value), "class": self.klass(type(value))}}

    def klass(self, kind: type) -> dict[str, Any]:
        """A class with its bases; built-in ones by their name."""
        if kind.__module__ in _BUILT_IN:
            return {"builtin": kind.__name__}
        bases = [self.klass(base) for base in kind.__bases__ if base is not object]
        return {"kind": self.number(kind), "name": kind.__name__, "bases": bases}

    def read(self, reference: dict[str, Any]) -> Any:
        """The object of a reference that came back."""
        return self.object(reference["id"])


def check_out(files: dict[str, str], roots: list[str]) -> None:
    """Write the product's files to the scratch folder and import from there."""
    for path, text in files.items():
        folder = os.path.dirname(path)  # noqa: PTH120
        if folder:
            os.makedirs(folder, exist_ok=True)  # noqa: PTH103
        with open(path, "w") as file:  # noqa: PTH123
            file.write(text)
    sys.path[:0] = [os.path.abspath(root) for root in roots]  # noqa: PTH100


def do(kept: Kept, asked: dict[str, Any]) -> Any:
    """One operation."""
    if asked["op"] == "import":
        return importlib.import_module(asked["name"])
    target = kept.object(asked["of"])
    if asked["op"] == "get":
        return getattr(target, asked["name"])
    if asked["op"] == "set":
        return setattr(target, asked["name"], decode(asked["value"], kept.read))
    if asked["op"] == "del":
        return delattr(target, asked["name"])
    args = [decode(item, kept.read) for item in asked["args"]]
    if asked["op"] == "special":
        return getattr(type(target), asked["name"])(target, *args)
    kwargs = {name: decode(item, kept.read) for name, item in asked["kwargs"].items()}
    return target(*args, **kwargs)


def main() -> None:
    """Answer until the parent closes the pipe."""
    questions, answer = open_channel()
    kept = Kept()
    for question in questions:
        said: dict[str, Any]
        try:
            if "files" in question:
                check_out(question["files"], question["roots"])
                said = {"ok": True}
            else:
                said = {"value": encode(do(kept, question), kept.write)}
        except BaseException as error:  # noqa: BLE001  # boundary: anybody's code
            about = {"class": kept.klass(type(error)), "text": str(error)[:500]}
            said = {"raised": {**about, "args": encode(list(error.args), kept.write)}}
        answer(said)


if __name__ == "__main__":
    main()
