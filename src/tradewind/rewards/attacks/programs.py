"""Against `stdio`: programs that want to be called right without being right."""

from __future__ import annotations

from collections.abc import Callable

from tradewind.rewards.attacks.attack import Attack
from tradewind.rewards.attacks.sources import BEFORE, BESIDES, Source
from tradewind.types.record import Json
from tradewind.types.task import Task

_SHORT = {
    "nothing": Source("pass", "that no output is no error"),
    "echo": Source("import sys; print(sys.stdin.read())", "that the input is the answer"),
    "constant 0": Source("print(0)", "that 0 is often right"),
    "constant YES": Source("print('YES')", "that one of two answers is often right"),
    "everything": Source(
        "for n in range(10000): print(n)", "that the right line is looked for among others"
    ),
}

_STOPS_ITS_RUNNER = ("attacked parent",)
"""Then nobody is left to answer, until the deadline."""


def _program(code: str) -> Callable[[Task], Json]:
    return lambda task: {"code": code}


def _slow(name: str, source: Source) -> bool:
    return source.slow or name in _STOPS_ITS_RUNNER


PROGRAMS: tuple[Attack, ...] = tuple(
    Attack(name, "stdio", _program(source.code), source.hope, _slow(name, source))
    for name, source in {**_SHORT, **BEFORE, **BESIDES}.items()
)
