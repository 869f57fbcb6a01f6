"""A team: one kernel, run at once by all threads that torch computes with.

Threads of our own would be one set too many: OpenMP's wait for their turn by spinning, and whoever
shares their cores waits with them. So a kernel runs in a parallel region of the very library whose
threads torch uses. Every thread enters the kernel and takes shares of the work until none is left.

    task    a record of addresses and sizes; its first field counts the shares that were taken
    kernel  while there is a share left: take it, compute it
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import cfunc, njit
from numba.core import types
from torch import Tensor

from tradewind.pool.engines.embedded.bf16.vectors import I64, Compiler, instruction

kernel: Compiler = cfunc(types.void(types.voidptr), error_model="numpy")
"""Decorates what a team runs: its argument is the address of the task."""
part: Compiler = njit(error_model="numpy", forceinline=True)
"""Decorates what kernels are made of."""

_LIBRARY = Path(torch.__file__).parent / "lib" / "libgomp.so.1"


def there() -> bool:
    """Whether torch brought the library whose threads a team is made of."""
    return _LIBRARY.exists()


def _region() -> Callable[..., None]:
    """GCC's entry to a parallel region: GOMP_parallel(function, data, threads, flags)."""
    function = ctypes.CDLL(str(_LIBRARY)).GOMP_parallel
    function.restype, function.argtypes = None, [ctypes.c_void_p] * 2 + [ctypes.c_uint] * 2
    return function


class Team:
    """The calling thread and those that help it."""

    def __init__(self, threads: int) -> None:
        self._threads, self._enter = threads, _region()
        self._tasks: dict[Any, tuple[np.ndarray[Any, Any], int]] = {}

    def run(self, kernel: Any, layout: np.dtype[Any], **fields: Tensor | float) -> None:
        """Returns when no share is left. `fields`: those of the task behind the first, in their
        order; a tensor stands for its address.
        """
        task, address = self._tasks.get(kernel) or self._add(kernel, layout, tuple(fields))
        task[0] = 0, *[f.data_ptr() if isinstance(f, Tensor) else f for f in fields.values()]
        self._enter(kernel.address, address, self._threads, 0)

    def _add(self, kernel: Any, layout: np.dtype[Any], fields: tuple[str, ...]) -> Any:
        """The record of a kernel that runs for the first time: there is one for each."""
        assert layout.names is not None and layout.names[1:] == fields, "other fields"
        task = np.zeros(1, layout)
        self._tasks[kernel] = task, task.ctypes.data
        return self._tasks[kernel]


@instruction
def take(_: Any, address: Any) -> Any:
    """The number at `address`, which is then one higher: no two threads get the same."""

    def emit(_c: Any, b: Any, _s: Any, v: Any) -> Any:
        place = b.inttoptr(v[0], I64.as_pointer())
        return b.atomic_rmw("add", place, ir.Constant(I64, 1), "monotonic")

    return types.int64(types.int64), emit


@instruction
def address_of(_: Any, pointer: Any) -> Any:
    """The address in a pointer."""
    return types.int64(types.voidptr), lambda _c, b, _s, v: b.ptrtoint(v[0], I64)
