"""Compiled kernels: how they are compiled, and when those on disk are thrown away.

Kernels are given all their memory and allocate none, so numba need not count references: inside a
loop each count is a locked instruction, and cost more than the work.

numba keeps what it compiled beside the package and looks at the source of the outermost function
only. The codec's kernels are inlined from several files, so an upgrade of one of them would go on
with the old arithmetic: an encoder that writes what nobody can read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from numba import njit

_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy", "_nrt": False}
_Compiler = Callable[[Callable[..., Any]], Any]

kernel: _Compiler = njit(**_OPTIONS)
"""Decorates what is called from Python. It allocates nothing and never divides by zero."""
part: _Compiler = njit(**_OPTIONS, forceinline=True)
"""Decorates what kernels are made of: a call would cost as much as the work."""

STAMP = "kernels.sha256"
"""Name of the file, beside the compiled code, that says of which sources it was made."""


def forget_stale(kernels: tuple[Any, ...], modules: tuple[ModuleType, ...]) -> bool:
    """Removes the index of what was compiled of other sources; whether there was any.

    `kernels` are numba's functions, `modules` those whose sources go into them. Several processes
    may do it at once. Where the folder cannot be written, numba keeps nothing there either.
    """
    digest = hashlib.sha256(Path(__file__).read_bytes())  # the options
    for module in modules:
        assert module.__file__ is not None, "a module of this package"
        digest.update(Path(module.__file__).read_bytes())
    found = False
    for folder in {Path(kernel.stats.cache_path) for kernel in kernels}:
        stamp = folder / STAMP
        try:
            if stamp.exists() and stamp.read_text() == digest.hexdigest():
                continue
            for module in modules:
                for index in folder.glob(f"{module.__name__.rpartition('.')[2]}.*.nbi"):
                    index.unlink(missing_ok=True)
                    found = True
            folder.mkdir(parents=True, exist_ok=True)
            stamp.write_text(digest.hexdigest())
        except OSError:
            return found
    return found
