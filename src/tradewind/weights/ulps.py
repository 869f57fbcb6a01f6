"""A changed item as a step on the line of all bit patterns, coded by an adaptive entropy coder.

    ... -inf ... -1.0 ... -0 | 0 ... 1.0 ... inf ... NaNs          place: ..., -2, -1 | 0, 1, 2, ...

Floats are sign and magnitude; counted from zero outwards on both sides they become a line on which
one ulp is one place. Every pattern has its place, so NaN payloads, infinities and signed zeros
come back. Steps wrap around at the ends of the line; integers are their own place.

Nine steps of ten are one ulp: "up by one, down by one, farther" is one symbol, at odds learned for
each exponent. What is farther follows as bit length, bits and sign.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, uint64

from tradewind.weights.entropy import (
    ODDS_BITS,
    ONE,
    get_bit,
    learn,
    narrow,
    pass_,
    put_bit,
)

LENGTHS = 34
"""Contexts of a size, a row for each exponent: by one or farther, then its bit length."""
_SECOND = 256 * LENGTHS
"""Where the contexts of the bit below the leading one begin, by bit length."""
_SIGN = _SECOND + LENGTHS
"""Context of the sign of steps of more than one."""
CONTEXTS = _SIGN + 1
"""Contexts that steps need, of a model whose first ones these are."""


@njit(cache=True, nogil=True, inline="always")
def place_of(bits: Any, half: Any) -> Any:
    """Place on the line; `half` is 2**(bits - 1), or 0 for integers, which are their own place."""
    x = np.int64(bits)
    return x if x < half or half == 0 else half - np.int64(1) - x


@njit(cache=True, nogil=True, inline="always")
def bits_at(place: Any, half: Any) -> Any:
    """The inverse of `place_of`; what exceeds the item is cut off when it is stored."""
    return place if place >= 0 or half == 0 else half - np.int64(1) - place


@njit(cache=True, nogil=True, inline="always")
def wrapped(x: Any, size: Any) -> Any:
    """x modulo 2**size, as a signed number."""
    return (x << (np.int64(64) - size)) >> (np.int64(64) - size)


@njit(cache=True, nogil=True)
def _put_size(low: Any, width: Any, at: Any, words: Any, model: Any, e: Any, size: Any) -> Any:
    """A size of two or more: its bit length (unary, at odds learned for e), then its bits."""
    length = 2
    row = np.int64(e) * LENGTHS
    while size >> length > 0:
        low, width, at = put_bit(low, width, at, words, model, row + length, True)
        length += 1
    low, width, at = put_bit(low, width, at, words, model, row + length, False)
    second = (size >> (length - 2)) & 1 == 1
    low, width, at = put_bit(low, width, at, words, model, _SECOND + length, second)
    rest = length - 2
    if rest > 0:
        tail = uint64(size & ((np.int64(1) << rest) - 1))
        unit = width >> uint64(rest)
        low, width, at = narrow(low, width, at, words, tail, uint64(1), unit)
    return low, width, at


@njit(cache=True, nogil=True)
def _get_size(code: Any, width: Any, at: Any, words: Any, model: Any, e: Any, bits: Any) -> Any:
    """(what `_put_size` wrote, code, width, at); the size is 0 if the stream is damaged."""
    length = 2
    row = np.int64(e) * LENGTHS
    while True:
        longer, code, width, at = get_bit(code, width, at, words, model, row + length)
        if not longer:
            break
        length += 1
        if length > bits:
            return np.int64(0), code, width, at
    second, code, width, at = get_bit(code, width, at, words, model, _SECOND + length)
    size = np.int64(3) if second else np.int64(2)
    rest = length - 2
    if rest > 0:
        unit = width >> uint64(rest)
        tail = code // unit
        if tail >> uint64(rest) != uint64(0):
            return np.int64(0), code, width, at
        code, width, at = pass_(code, width, at, words, tail, uint64(1), unit)
        size = (size << rest) | np.int64(tail)
    return size, code, width, at


@njit(cache=True, nogil=True)
def put_step(low: Any, width: Any, at: Any, words: Any, model: Any, e: Any, step: Any) -> Any:
    """One symbol for up by one, down by one, or farther; the odds of "by one" are learned for e."""
    near = step == 1 or step == -1
    context = np.int64(e) * LENGTHS
    half = uint64(model[context, 0]) >> uint64(1)
    unit = width >> uint64(ODDS_BITS)
    learn(model, context, near)
    if near:
        start = uint64(0) if step > 0 else half
        return narrow(low, width, at, words, start, half, unit)
    rest = uint64(ONE) - (half << uint64(1))
    low, width, at = narrow(low, width, at, words, half << uint64(1), rest, unit)
    size = -step if step < 0 else step
    low, width, at = _put_size(low, width, at, words, model, e, size)
    return put_bit(low, width, at, words, model, _SIGN, step < 0)


@njit(cache=True, nogil=True)
def get_step(code: Any, width: Any, at: Any, words: Any, model: Any, e: Any, bits: Any) -> Any:
    """(the step that `put_step` wrote, code, width, at); 0 if the stream is damaged."""
    context = np.int64(e) * LENGTHS
    half = uint64(model[context, 0]) >> uint64(1)
    unit = width >> uint64(ODDS_BITS)
    near = code < (half << uint64(1)) * unit
    learn(model, context, near)
    if near:
        down = code >= half * unit
        start = half if down else uint64(0)
        code, width, at = pass_(code, width, at, words, start, half, unit)
        return np.int64(-1) if down else np.int64(1), code, width, at
    rest = uint64(ONE) - (half << uint64(1))
    code, width, at = pass_(code, width, at, words, half << uint64(1), rest, unit)
    size, code, width, at = _get_size(code, width, at, words, model, e, bits)
    down, code, width, at = get_bit(code, width, at, words, model, _SIGN)
    return -size if down else size, code, width, at
