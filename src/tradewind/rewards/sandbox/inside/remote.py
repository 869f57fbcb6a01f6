"""Objects of another process, used as if they were here; what they say is plain data or they.

A test gets to see numbers, texts and containers themselves, and everything else as a `Remote`.
What a `Remote` thinks of plain data is not asked: comparing the two raises, so an object that
calls itself equal to everything is worth nothing. Two `Remote`s are compared by their own code.
"""

from __future__ import annotations

import builtins
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from plain import decode, encode  # type: ignore[import-not-found]  # beside this script

Ask = Callable[[dict[str, Any]], dict[str, Any]]
_ENDS_LOOPS = (StopIteration, StopAsyncIteration)
"""Raised through a `map` of a test they would end it, as if every answer had been right."""


class RemoteError(Exception):
    """The product raised what is no exception of Python's own, or answered nonsense."""


class Link:
    """One process that holds the product."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._kinds: dict[int, type] = {}
        self._objects: dict[int, Any] = {}

    def do(self, **question: Any) -> Any:
        """An operation's value; raises what it raised there."""
        said = self._ask(question)
        if "raised" in said:
            error = self._error(said["raised"])
            if isinstance(error, _ENDS_LOOPS) and question.get("name") != "__next__":
                raise RemoteError(f"it raised {type(error).__name__} outside of an iterator")
            raise error
        return decode(said["value"], self._refer)

    def data(self, value: Any) -> Any:
        """An argument on its way out; raises `TypeError` for what cannot leave this process."""
        return encode(value, _out)

    def _refer(self, reference: dict[str, Any]) -> Any:
        if "kind" in reference or "builtin" in reference:
            return self._kind(reference)
        number = int(reference["id"])
        if number not in self._objects:
            kind = self._kind(reference["class"])
            made: Any = object.__new__(kind if issubclass(kind, Remote) else Remote)
            object.__setattr__(made, "_link", self)
            object.__setattr__(made, "_number", number)
            self._objects[number] = made
        return self._objects[number]

    def _kind(self, about: dict[str, Any]) -> type:
        """A class of here that stands for one of there, with bases that do so too."""
        if "builtin" in about:
            known = getattr(builtins, str(about["builtin"]), None)
            fits = isinstance(known, type) and issubclass(known, Exception)
            return known if fits else Remote  # type: ignore[return-value]
        number = int(about["kind"])
        if number not in self._kinds:
            bases: list[type] = [self._kind(base) for base in about["bases"]]
            ours = [base for base in bases if base is not Remote] or [Remote]
            errors: list[type] = [base for base in bases if issubclass(base, Exception)]
            chosen = tuple(dict.fromkeys(errors or ours))
            make = type if errors else RemoteKind
            space = {"_link": self, "_number": number, "__module__": "product"}
            self._kinds[number] = make(str(about["name"]), chosen, space)
        return self._kinds[number]

    def _error(self, about: dict[str, Any]) -> Exception:
        kind = self._kind(about["class"])
        if not issubclass(kind, Exception):
            return RemoteError(f"{about['class']}: {about['text']}")
        try:
            return kind(*decode(about["args"], self._refer))
        except TypeError:
            return RemoteError(str(about["text"]))


class RemoteKind(type):
    """The class of a class that lives elsewhere: calling it makes an instance there."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """An instance, made there."""
        return _call(cls, args, kwargs)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") or "_link" not in cls.__dict__:
            raise AttributeError(name)
        return cls._link.do(op="get", of=cls._number, name=name)


class Remote(metaclass=RemoteKind):
    """An object that lives elsewhere."""

    _link: Link
    _number: int

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_link", "_number"):
            return object.__getattribute__(self, name)
        return self._link.do(op="get", of=self._number, name=name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._link.do(op="set", of=self._number, name=name, value=self._link.data(value))

    def __delattr__(self, name: str) -> None:
        self._link.do(op="del", of=self._number, name=name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What it gives there."""
        return _call(self, args, kwargs)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of the product>"

    def __hash__(self) -> int:
        return hash((Remote, self._number))

    def __eq__(self, other: object) -> bool:
        if other is None or self is other:
            return self is other
        return bool(_between(self, "__eq__", other))


def _call(target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    link = target._link
    named = {name: link.data(value) for name, value in kwargs.items()}
    return link.do(
        op="call", of=target._number, args=[link.data(value) for value in args], kwargs=named
    )


def _out(value: Any) -> dict[str, Any]:
    if isinstance(value, Remote) or (isinstance(value, RemoteKind) and value is not Remote):
        return {"ref": {"id": value._number}}
    raise TypeError(
        f"a test cannot hand the product {value!r}: only plain data and its own objects can leave"
    )


def _special(target: Remote, name: str, *args: Any) -> Any:
    data = [target._link.data(value) for value in args]
    return target._link.do(op="special", of=target._number, name=name, args=data)


def _between(target: Remote, name: str, other: object) -> Any:
    if not isinstance(other, Remote):
        raise TypeError(f"{target!r}, which is not plain data, meets {other!r}")
    return _special(target, name, other)


def _asking(name: str) -> Any:
    return lambda self, *args: _special(self, name, *args)


def _comparing(name: str) -> Any:
    return lambda self, other: bool(_between(self, name, other))


def _computing(name: str) -> Any:
    def compute(self: Remote, *others: Any) -> Any:
        result = _special(self, name, *others)
        if not isinstance(result, Remote):  # else it could make its distance to anything zero
            raise TypeError(f"{self!r} gave plain data for {name}")
        return result

    return compute


for _name in ("len", "getitem", "setitem", "delitem", "next", "str", "bool", "enter", "exit"):
    setattr(Remote, f"__{_name}__", _asking(f"__{_name}__"))
for _name in ("lt", "le", "gt", "ge"):
    setattr(Remote, f"__{_name}__", _comparing(f"__{_name}__"))
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "neg", "and", "or", "xor", "iter"):
    setattr(Remote, f"__{_name}__", _computing(f"__{_name}__"))


class Product(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the product's modules, after everything that is installed or belongs to the tests."""

    def __init__(self, link: Link, modules: dict[str, bool]) -> None:
        """`modules` says of each module's name whether it is a package."""
        self._link, self._modules = link, modules

    def install(self) -> None:
        """Last in the list: no file of an agent stands in for a module of ours."""
        sys.meta_path.append(self)

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        """Part of the import system."""
        if fullname not in self._modules:
            return None
        package = self._modules[fullname]
        return importlib.machinery.ModuleSpec(fullname, self, is_package=package)

    def create_module(self, spec: Any) -> types.ModuleType:
        """A module whose names are looked up where it lives."""
        remote = self._link.do(op="import", name=spec.name)
        return RemoteModule(spec.name, remote)

    def exec_module(self, module: types.ModuleType) -> None:
        """It has been executed where it lives."""


class RemoteModule(types.ModuleType):
    """A module that lives elsewhere."""

    def __init__(self, name: str, remote: Any) -> None:
        super().__init__(name)
        self.__dict__["_remote"] = remote

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__dict__["_remote"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__") or isinstance(value, types.ModuleType):
            self.__dict__[name] = value
        else:
            setattr(self.__dict__["_remote"], name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.__dict__["_remote"], name)
