"""Python values as plain data, type by type, so that who compares them runs no code of theirs.

    None, bool, str, float   themselves (NaN and infinities as Python's json writes them)
    int                      itself, or {"int": hex} beyond 64 bits
    list                     an array
    others                   {"tuple": [...]} {"set": [...]} {"frozenset": [...]} {"bytes": hex}
                             {"complex": [re, im]} {"dict": [[key, value], ...]}
    anything else            {"other": name of its class}

Types are compared exactly: a subclass of `int` that is equal to everything is an "other".
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` itself takes long to import
if TYPE_CHECKING:
    from typing import Any

_DEEPEST = 100
_LARGEST = 1 << 63
_SAME_HASH = 100
"""Most members of a set, or keys of a dict, that may have the same hash."""


class Other:
    """A value that is not plain data. It is neither true nor equal to anything: asking is an error,
    so that no test passes by it."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        raise TypeError(f"the candidate gave {self!r}")

    def __bool__(self) -> bool:
        raise TypeError(f"the candidate gave {self!r}")

    def __repr__(self) -> str:
        return f"<{self.name}, which is not plain data>"


def named(value: Any) -> dict[str, Any]:
    """What is said of a value that is not plain: the name of its class."""
    return {"other": str(getattr(type(value), "__name__", "?"))[:80]}


def encode(value: Any, other: Any = named, depth: int = 0) -> Any:
    """`value` as data for JSON; `other` writes what is not plain.

    Raises `ValueError` if it is nested too deep.
    """
    kind = type(value)
    if value is None or kind in (bool, str, float):
        return value
    if kind is int:
        return value if -_LARGEST < value < _LARGEST else {"int": hex(value)}
    if depth >= _DEEPEST:
        raise ValueError(f"it is nested more than {_DEEPEST} deep")
    if kind is bytes:
        return {"bytes": value.hex()}
    if kind is complex:
        return {"complex": [value.real, value.imag]}

    def inner(item: Any) -> Any:
        return encode(item, other, depth + 1)

    if kind is list:
        return [inner(item) for item in value]
    if kind in (tuple, set, frozenset):
        return {kind.__name__: [inner(item) for item in value]}
    if kind is dict:
        return {"dict": [[inner(key), inner(item)] for key, item in value.items()]}
    return other(value)


def decode(data: Any, refer: Any = None) -> Any:
    """The value that `encode` was given; raises `ValueError` for anything it cannot have written.

    `refer` reads {"ref": ...}, where both sides have agreed on one. A member of a set or a key
    that cannot be hashed makes the whole an `Other`.
    """
    try:
        return _decode(data, refer)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def _decode(data: Any, refer: Any) -> Any:
    if data is None or type(data) in (bool, str, float, int):
        return data
    if type(data) is list:
        return [_decode(item, refer) for item in data]
    if type(data) is not dict or len(data) != 1:
        raise ValueError("it is not plain data")
    ((kind, inner),) = data.items()
    try:
        if kind == "ref" and refer is not None:
            return refer(inner)
        if kind in _HOLDING:
            return _hold(kind, inner, refer)
        return _READ[kind](inner)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError("it is not plain data") from error


_HOLDING = {"tuple": tuple, "set": set, "frozenset": frozenset, "dict": dict}


def _hold(kind: str, inner: Any, refer: Any) -> Any:
    items = [_decode(item, refer) for item in inner]
    if kind == "dict":
        items = [(key, item) for key, item in items]  # refuses what is no pair
    try:
        if kind != "tuple":
            _refuse_collisions([item[0] for item in items] if kind == "dict" else items)
        return _HOLDING[kind](items)
    except TypeError:
        return Other(f"a {kind} of what cannot be hashed")


def _refuse_collisions(items: list[Any]) -> None:
    """Numbers can be chosen so that all have one hash; a set of them takes hours to build."""
    if len(items) <= _SAME_HASH:
        return
    hashes = sorted(map(hash, items))
    if any(a == b for a, b in zip(hashes, hashes[_SAME_HASH:], strict=False)):
        raise ValueError("its members are made to collide")


_READ: dict[str, Any] = {
    "int": lambda text: int(text, 16),
    "bytes": bytes.fromhex,
    "complex": lambda parts: complex(float(parts[0]), float(parts[1])),
    "other": lambda name: Other(str(name)),
}
