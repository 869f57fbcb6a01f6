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
DEPTH = 10
"""Bits below the leading one of a far step that are coded at learned odds. A weight that was zero
moves by the learning rate or a little less, so these bits repeat; the last ones are noise."""
NODES = 1 << DEPTH
TREES = 256 * LENGTHS
"""First of the contexts of those bits: a binary tree for each bit length, as in LZMA."""
CONTEXTS = TREES + LENGTHS * NODES
"""Contexts that steps need, of a model whose first ones these are."""
PLAIN = 16
"""Most bits that are written at once."""


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


@njit(cache=True, nogil=True, inline="always")
def _put_size(
    low: Any, width: Any, at: Any, words: Any, model: Any, length: Any, size: Any, sign: Any
) -> Any:
    """The bits of `size` below its leading one, and the sign."""
    left = length - uint64(1)
    node = uint64(1)
    tree = uint64(TREES) + length * uint64(NODES)
    while left > uint64(0) and node < uint64(NODES):
        left -= uint64(1)
        bit = (size >> left) & uint64(1)
        low, width, at = put_bit(low, width, at, words, model, tree + node, bit != uint64(0))
        node = (node << uint64(1)) | bit
    tail = ((size & ((uint64(1) << left) - uint64(1))) << uint64(1)) | sign
    left += uint64(1)
    if left > uint64(PLAIN):
        left -= uint64(PLAIN)
        top = tail >> uint64(PLAIN)
        low, width, at = narrow(low, width, at, words, top, uint64(1), width >> left)
        left = uint64(PLAIN)
    rest = tail & ((uint64(1) << left) - uint64(1))
    return narrow(low, width, at, words, rest, uint64(1), width >> left)


@njit(cache=True, nogil=True, inline="always")
def _get_size(code: Any, width: Any, at: Any, words: Any, model: Any, length: Any) -> Any:
    """(size, sign, code, width, at): the inverse of `_put_size`."""
    left = length - uint64(1)
    node, size = uint64(1), uint64(1)
    tree = uint64(TREES) + length * uint64(NODES)
    while left > uint64(0) and node < uint64(NODES):
        left -= uint64(1)
        yes, code, width, at = get_bit(code, width, at, words, model, tree + node)
        node = (node << uint64(1)) | uint64(yes)
        size = (size << uint64(1)) | uint64(yes)
    left += uint64(1)
    if left > uint64(PLAIN):
        left -= uint64(PLAIN)
        unit = width >> left
        top = min(code // unit, (uint64(1) << left) - uint64(1))
        code, width, at = pass_(code, width, at, words, top, uint64(1), unit)
        size = (size << left) | top
        left = uint64(PLAIN)
    unit = width >> left
    rest = min(code // unit, (uint64(1) << left) - uint64(1))
    code, width, at = pass_(code, width, at, words, rest, uint64(1), unit)
    size = (size << left) | rest
    return size >> uint64(1), size & uint64(1), code, width, at


@njit(cache=True, nogil=True, inline="always")
def _put_far(low: Any, width: Any, at: Any, words: Any, model: Any, e: Any, step: Any) -> Any:
    """A step of two or more: the bit length of its size (unary, at odds learned for e), the bits
    below the leading one (the first `DEPTH` at odds learned for the length), the sign.
    """
    size = -step if step < 0 else step
    length = uint64(2)
    context = e * uint64(LENGTHS) + uint64(2)
    while size >> np.int64(length) > 0:
        low, width, at = put_bit(low, width, at, words, model, context, True)
        length += uint64(1)
        context += uint64(1)
    low, width, at = put_bit(low, width, at, words, model, context, False)
    return _put_size(low, width, at, words, model, length, uint64(size), uint64(step < 0))


@njit(cache=True, nogil=True, inline="always")
def _get_far(code: Any, width: Any, at: Any, words: Any, model: Any, e: Any, bits: Any) -> Any:
    """(the step that `_put_far` wrote, code, width, at); 0 if the stream is damaged."""
    length = uint64(2)
    context = e * uint64(LENGTHS) + uint64(2)
    while True:
        longer, code, width, at = get_bit(code, width, at, words, model, context)
        if not longer:
            break
        length += uint64(1)
        context += uint64(1)
        if length > uint64(bits):
            return np.int64(0), code, width, at
    size, sign, code, width, at = _get_size(code, width, at, words, model, length)
    return -np.int64(size) if sign else np.int64(size), code, width, at


@njit(cache=True, nogil=True, inline="always")
def put_step(low: Any, width: Any, at: Any, words: Any, model: Any, e: Any, step: Any) -> Any:
    """One symbol for up by one, down by one, or farther; the odds of "by one" are learned for e."""
    near = step == 1 or step == -1
    context = e * uint64(LENGTHS)
    half = uint64(model[context, 0]) >> uint64(1)
    unit = width >> uint64(ODDS_BITS)
    learn(model, context, near)
    if near:
        start = uint64(0) if step > 0 else half
        return narrow(low, width, at, words, start, half, unit)
    both = half << uint64(1)
    low, width, at = narrow(low, width, at, words, both, uint64(ONE) - both, unit)
    return _put_far(low, width, at, words, model, e, step)


@njit(cache=True, nogil=True, inline="always")
def get_step(code: Any, width: Any, at: Any, words: Any, model: Any, e: Any, bits: Any) -> Any:
    """(the step that `put_step` wrote, code, width, at); 0 if the stream is damaged."""
    context = e * uint64(LENGTHS)
    half = uint64(model[context, 0]) >> uint64(1)
    unit = width >> uint64(ODDS_BITS)
    both = half << uint64(1)
    near = code < both * unit
    learn(model, context, near)
    if near:
        down = code >= half * unit
        start = half if down else uint64(0)
        code, width, at = pass_(code, width, at, words, start, half, unit)
        return np.int64(-1) if down else np.int64(1), code, width, at
    code, width, at = pass_(code, width, at, words, both, uint64(ONE) - both, unit)
    return _get_far(code, width, at, words, model, e, bits)
