"""An entropy coder for many small symbols: two interleaved lanes of rANS.

Asymmetric numeral systems (Duda 2009): a lane is a 64-bit number x; a symbol that owns the share
[start, start + size) of `ONE` is pushed onto it by

    x -> (x // size) * ONE + start + x % size

which makes x larger by the symbol's information, and popped by the inverse. When x would leave
[2**31, 2**63) a word is moved out or in. What was pushed last is popped first: the writer notes
the shares of all symbols and codes them from the last to the first.

Symbol k lies in lane k modulo 2. A pop has to wait for the pop before in its own lane only, so the
processor works on two at once:

    x, y, at = pop(x, y, at, words, share)       the lanes change places at every symbol

Safe on damaged input: a reader that runs out of words reads zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import uint64

from tradewind.weights.alphabet import ODDS_BITS, ONE, START
from tradewind.weights.kernels import kernel, part

EMPTY = 1 << 31
"""A lane that holds nothing."""
HEAD = 4
"""Words that two lanes take."""

_WORD = uint64(32)


@kernel
def push_all(shares: Any, count: Any, words: Any) -> Any:
    """Codes so many shares into the end of `words`; returns where it begins. Needs a word for two
    shares, and `HEAD`.
    """
    at = uint64(words.size)
    k = uint64(count)
    x, y = uint64(EMPTY), uint64(EMPTY)
    while k > uint64(0):
        k -= uint64(1)
        start = uint64(shares[k]) >> uint64(START)
        size = uint64(shares[k]) & uint64((1 << START) - 1)
        if x >= size << uint64(63 - ODDS_BITS):
            at -= uint64(1)
            words[at] = np.uint32(x)
            x >>= _WORD
        quotient = x // size
        x, y = y, (quotient << uint64(ODDS_BITS)) + (x - quotient * size) + start
    for lane in (x, y):  # the first symbol's lane was pushed to last, and lies in y
        words[at - uint64(1)] = np.uint32(lane)
        words[at - uint64(2)] = np.uint32(lane >> _WORD)
        at -= uint64(2)
    return at


@kernel
def open_lanes(words: Any) -> Any:
    """(x, y, at) before the first symbol."""
    if words.size < HEAD:
        return uint64(0), uint64(0), uint64(HEAD)
    x = uint64(words[0]) << _WORD | uint64(words[1])
    y = uint64(words[2]) << _WORD | uint64(words[3])
    return x, y, uint64(HEAD)


@part
def slot_of(x: Any) -> Any:
    """The number below `ONE` that lies in the share of the next symbol."""
    return x & uint64(ONE - 1)


@part
def pop(x: Any, y: Any, at: Any, words: Any, share: Any) -> Any:
    """(x, y, at) after the symbol of this share."""
    size = share & uint64((1 << START) - 1)
    x = size * (x >> uint64(ODDS_BITS)) + slot_of(x) - (share >> uint64(START))
    if x < uint64(EMPTY):
        x <<= _WORD
        if at < uint64(words.size):
            x |= uint64(words[at])
        at += uint64(1)
    return y, x, at


@part
def exhausted(x: Any, y: Any, at: Any, words: Any) -> Any:
    """Whether the lanes are as the writer began: everything was read, and nothing else."""
    return x == uint64(EMPTY) and y == uint64(EMPTY) and at == uint64(words.size)
