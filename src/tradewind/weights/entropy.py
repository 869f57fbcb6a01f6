"""An entropy coder: a range coder over 32-bit words, and odds that it learns.

Range coding (Martin 1979): the message is a number in [0, 1); each symbol narrows an interval in
proportion to its probability. `low` and `width` of the interval are 64-bit integers; a word leaves
whenever `width` has fallen below 2**32, and a carry walks back through the words that are written
already. All is integer arithmetic, so both ends compute the same on every machine.

    writer   low, width, at     at: words written       narrow for each symbol, then finish
    reader   code, width, at    code: message - low     code // unit tells the symbol, then pass_

The three numbers are handed in and out, not kept in an object, and the functions are inlined: so
they stay in registers (a call would cost as much as the symbol). All are compiled by numba, and
safe on damaged input: a reader that runs out of words reads zeros, and every index is that of a
word or context that exists.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit, uint64

WIDEST = 2**64 - 1
"""Width at the start."""
ODDS_BITS = 16
ONE = 1 << ODDS_BITS
"""Learned odds are in units of 2**-16."""
FLOOR = 24
"""No odds are ever closer to 0 or 1 than this: a wrong guess costs 11.4 bits at most."""
SLOWEST = 254
"""Samples after which odds stop averaging all of them and begin to forget the oldest."""

RATE = np.array([(1 << 16) * 2 // (2 * n + 3) for n in range(SLOWEST + 1)], np.int64)
"""How far odds move towards a sample after n of them, in units of 2**-16: with every sample so far
weighing the same, and one and a half that said nothing (near Krichevsky and Trofimov 1981)."""

Words = npt.NDArray[np.uint32]
Model = npt.NDArray[np.uint16]
"""(contexts, 2): the odds of yes in units of 2**-16, and the samples behind them."""

_WORD = uint64(32)
_FULL = uint64(1 << 32)


def new_model(contexts: int) -> Model:
    """Contexts that know nothing: even odds."""
    model = np.zeros((contexts, 2), np.uint16)
    model[:, 0] = ONE // 2
    return model


@njit(cache=True, nogil=True, inline="always")
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


@njit(cache=True, nogil=True)
def _carry(words: Any, at: Any) -> None:
    """Adds one to the number that the words before `at` are."""
    j = at
    while j > uint64(0):
        j -= uint64(1)
        words[j] += np.uint32(1)
        if words[j] != np.uint32(0):
            return


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def first_code(words: Any) -> Any:
    """The `code` of a reader at the first symbol; its `at` is 2."""
    code = uint64(0)
    for j in range(2):
        code <<= _WORD
        if j < words.size:
            code |= uint64(words[j])
    return code


@njit(cache=True, nogil=True, inline="always")
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


@njit(cache=True, nogil=True, inline="always")
def learn(model: Any, context: Any, yes: Any) -> None:
    """The odds of a context move towards what was seen."""
    seen = model[context, 1]
    odds = np.int64(model[context, 0])
    goal = np.int64(ONE - FLOOR) if yes else np.int64(FLOOR)
    model[context, 0] = odds + ((goal - odds) * RATE[seen] >> np.int64(16))
    if seen < SLOWEST:
        model[context, 1] = seen + 1


@njit(cache=True, nogil=True, inline="always")
def put_bit(low: Any, width: Any, at: Any, words: Any, model: Any, context: Any, yes: Any) -> Any:
    """Writes yes or no at the odds of its context, which learns it."""
    odds = uint64(model[context, 0])
    unit = width >> uint64(ODDS_BITS)
    start = uint64(0) if yes else odds
    size = odds if yes else uint64(ONE) - odds
    learn(model, context, yes)
    return narrow(low, width, at, words, start, size, unit)


@njit(cache=True, nogil=True, inline="always")
def get_bit(code: Any, width: Any, at: Any, words: Any, model: Any, context: Any) -> Any:
    """(yes or no, code, width, at)."""
    odds = uint64(model[context, 0])
    unit = width >> uint64(ODDS_BITS)
    yes = code < odds * unit
    start = uint64(0) if yes else odds
    size = odds if yes else uint64(ONE) - odds
    learn(model, context, yes)
    code, width, at = pass_(code, width, at, words, start, size, unit)
    return yes, code, width, at
