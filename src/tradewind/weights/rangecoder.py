"""An entropy coder for few and large symbols: a range coder over 32-bit words.

Range coding (Martin 1979): the message is a number in [0, 1); each symbol narrows an interval in
proportion to its probability. `low` and `width` of the interval are 64-bit integers; a word leaves
whenever `width` has fallen below 2**32, and a carry walks back through the words that are written
already. All is integer arithmetic, so both ends compute the same on every machine.

    writer   low, width, at     at: words written       narrow for each symbol, then finish
    reader   code, width, at    code: message - low     code // unit tells the symbol, then pass_

The three numbers are handed in and out, not kept in an object, and the functions are inlined: so
they stay in registers (a call would cost as much as the symbol). All are compiled by numba, and
safe on damaged input: a reader that runs out of words reads zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import uint64

from tradewind.weights.kernels import kernel, part

WIDEST = 2**64 - 1
"""Width at the start."""

_WORD = uint64(32)
_FULL = uint64(1 << 32)


@part
def narrow(low: Any, width: Any, at: Any, words: Any, start: Any, size: Any, unit: Any) -> Any:
    """Writes the symbol that owns [start, start + size) units of the width."""
    offset = start * unit
    low = low + offset
    if low < offset:
        _carry(words, at)
    width = size * unit
    if width < _FULL:
        words[at] = np.uint32(low >> _WORD)
        at += uint64(1)
        low <<= _WORD
        width <<= _WORD
    return low, width, at


@kernel
def _carry(words: Any, at: Any) -> None:
    """Adds one to the number that the words before `at` are."""
    j = at
    while j > uint64(0):
        j -= uint64(1)
        words[j] += np.uint32(1)
        if words[j] != np.uint32(0):
            return


@kernel
def finish(low: Any, at: Any, words: Any) -> Any:
    """Writes the last word; returns how many there are. Zeros at the end are left out."""
    top = low + (_FULL - uint64(1))
    if top < low:
        _carry(words, at)
    words[at] = np.uint32(top >> _WORD)
    count = np.int64(at) + 1
    while count > 0 and words[count - 1] == 0:
        count -= 1
    return count


@kernel
def first_code(words: Any) -> Any:
    """The `code` of a reader at the first symbol; its `at` is 2."""
    code = uint64(0)
    for j in range(2):
        code <<= _WORD
        if j < words.size:
            code |= uint64(words[j])
    return code


@part
def pass_(code: Any, width: Any, at: Any, words: Any, start: Any, size: Any, unit: Any) -> Any:
    """Leaves behind the symbol that owns [start, start + size) units of the width."""
    code = code - start * unit
    width = size * unit
    if width < _FULL:
        code <<= _WORD
        if at < uint64(words.size):
            code |= uint64(words[at])
        at += uint64(1)
        width <<= _WORD
    return code, width, at
