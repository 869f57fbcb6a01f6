"""The steps of marked items, each on the line of all bit patterns, as symbols and plain bits.

    ... -inf ... -1.0 ... -0 | 0 ... 1.0 ... inf ... NaNs          place: ..., -2, -1 | 0, 1, 2, ...

Floats are sign and magnitude; counted from zero outwards on both sides they become a line on which
one ulp is one place. Every pattern has its place, so NaN payloads, infinities and signed zeros
come back. Steps wrap around at the ends of the line; integers are their own place.

Two passes over one stream of symbols (`lanes`) and one of plain bits:

    1  every marked item    the bit length of its step, given its old exponent: 0 stays as it is,
                            1 is one ulp (nine of ten), 2 is two or three, ...
    2  every changed item   up to three nibbles below the leading bit of the size, given the length
                            and the nibbles before; what is below those is plain, and so is the sign

A weight that was zero moves by the learning rate or a little less: there the nibbles repeat, and
the last bits are noise.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import uint64

from tradewind.weights.alphabet import SEEN, Model, find, learn, new_model
from tradewind.weights.kernels import kernel, part
from tradewind.weights.lanes import exhausted, open_lanes, pop, slot_of

NIBBLE = 4
LENGTHS = 33
"""Bit lengths of sizes, for items of up to 4 bytes."""
SECOND = LENGTHS
"""Contexts of the first nibble are the lengths; from here on, those of the second: (length, first
nibble)."""
THIRD = SECOND + LENGTHS * 16
"""From here on, those of the third nibble: (first nibble, second nibble)."""
MOST_SHARES = 3
"""Symbols that the second pass needs for one item at most."""


@cache
def _nibbles() -> Model:
    """Each context as if it had seen one sample, spread over the nibbles that it can have."""
    prior = np.ones((THIRD + 256, 16), np.uint16)
    for length in range(1, LENGTHS):
        for first, rows, above in ((length, 1, 1), (SECOND + 16 * length, 16, 1 + NIBBLE)):
            own = 1 << min(max(length - above, 0), NIBBLE)
            prior[first : first + rows, :own] = SEEN // own
            prior[first : first + rows, own:] = 0
    return new_model(prior)


_FALLING = np.maximum(SEEN >> np.arange(LENGTHS), 1).astype(np.uint16)


def new_models(may_stay: Any, bits: int) -> tuple[Model, Model]:
    """Models of lengths and of nibbles that know nothing, for items of so many bits.

    `may_stay` (256,) says of which old exponents marked items may stay as they are.
    """
    rows = may_stay.astype(np.int64)
    shares, counts, left = _lengths(bits)
    lengths = shares[rows], counts[rows], left[rows]
    shares, counts, left = _nibbles()
    return lengths, (shares.copy(), counts.copy(), left.copy())


@cache
def _lengths(bits: int) -> Model:
    """A context of items that must change, and one of those that may stay."""
    prior = np.zeros((2, bits + 1), np.uint16)
    prior[1, 0] = SEEN
    prior[:, 1:] = _FALLING[:bits]
    return new_model(prior)


@part
def _place(bits: Any, half: Any) -> Any:
    """Place on the line; `half` is 2**(bits - 1), or 0 for integers, which are their own place."""
    x = np.int64(bits)
    return x if x < half or half == 0 else half - np.int64(1) - x


@part
def _bits_at(place: Any, half: Any) -> Any:
    """The inverse of `_place`; what exceeds the item is cut off when it is stored."""
    return place if place >= 0 or half == 0 else half - np.int64(1) - place


@part
def _wrapped(x: Any, bits: Any) -> Any:
    """x modulo 2**bits, as a signed number."""
    return (x << (np.int64(64) - bits)) >> (np.int64(64) - bits)


@part
def _step(old: Any, new: Any, half: Any, bits: Any) -> Any:
    """(size, its bit length, 1 if it goes down)."""
    step = _wrapped(_place(new, half) - _place(old, half), bits)
    size = uint64(-step if step < 0 else step)
    length = uint64(0)
    while size >> length > uint64(0):
        length += uint64(1)
    return size, length, uint64(step < 0)


@part
def _note(model: Any, context: Any, symbol: Any) -> Any:
    """The share of a symbol, which is then learned."""
    share = model[0][context, symbol]
    learn(model, context, symbol)
    return share


@part
def _read(model: Any, context: Any, x: Any, y: Any, at: Any, words: Any) -> Any:
    """(symbol, x, y, at): the next symbol, which is then learned."""
    symbol = find(model, context, slot_of(x))
    x, y, at = pop(x, y, at, words, uint64(model[0][context, symbol]))
    learn(model, context, symbol)
    return symbol, x, y, at


@kernel
def encode(
    old: Any, new: Any, layout: Any, marked: Any, lengths: Any, models: Any, shares: Any, plain: Any
) -> Any:
    """Notes the shares of all symbols and fills the plain bits, words of zeros before; returns how
    many there are of both. The changed ones of `marked` end up in front; `lengths` is scratch.
    """
    shift, mask, half, bits = layout
    changed = uint64(0)
    for k in range(uint64(marked.size)):
        i = uint64(marked[k])
        _, length, _ = _step(old[i], new[i], half, bits)
        shares[k] = _note(models[0], (uint64(old[i]) >> shift) & mask, length)
        marked[changed], lengths[changed] = i, length
        changed += uint64(length > uint64(0))
    count, at = uint64(marked.size), uint64(0)
    for k in range(changed):
        i, length = uint64(marked[k]), uint64(lengths[k])
        step = _wrapped(_place(new[i], half) - _place(old[i], half), bits)
        size = uint64(-step if step < 0 else step)
        left, context, above = length - uint64(1), length, uint64(0)
        for level in range(3):
            if left == uint64(0):
                break
            take = min(left, uint64(NIBBLE))
            left -= take
            nibble = (size >> left) & ((uint64(1) << take) - uint64(1))
            shares[count] = _note(models[1], context, nibble)
            count += uint64(1)
            context, above = _below(level, length, above, nibble)
        rest = (size & ((uint64(1) << left) - uint64(1))) << uint64(1) | uint64(step < 0)
        rest <<= at & uint64(31)
        plain[at >> uint64(5)] |= np.uint32(rest)
        plain[(at >> uint64(5)) + uint64(1)] |= np.uint32(rest >> uint64(32))
        at += left + uint64(1)
    return np.int64(count), np.int64(at)


@part
def _below(level: Any, length: Any, above: Any, nibble: Any) -> Any:
    """(context of the next nibble, nibbles so far) after one of the given level, from 0."""
    above = above << uint64(NIBBLE) | nibble
    if level == 0:
        return uint64(SECOND) + length * uint64(16) + nibble, above
    return uint64(THIRD) + (above & uint64(255)), above


@kernel
def decode(
    old: Any, out: Any, layout: Any, marked: Any, lengths: Any, models: Any, words: Any, plain: Any
) -> Any:
    """Writes the new items of all that are marked and change into `out`, which may be `old` itself;
    False for damaged streams. `marked` is reordered, `lengths` is scratch, and `plain` has a word
    more than it is filled.
    """
    shift, mask, half, bits = layout
    x, y, at = open_lanes(words)
    changed = uint64(0)
    for k in range(uint64(marked.size)):
        i = uint64(marked[k])
        context = (uint64(old[i]) >> shift) & mask
        length, x, y, at = _read(models[0], context, x, y, at, words)
        marked[changed], lengths[changed] = i, length
        changed += uint64(length > uint64(0))
    bit, last = uint64(0), uint64(32) * uint64(plain.size - 1)
    for k in range(changed):
        i, length = uint64(marked[k]), uint64(lengths[k])
        left, context, above, size = length - uint64(1), length, uint64(0), uint64(1)
        for level in range(3):
            if left == uint64(0):
                break
            take = min(left, uint64(NIBBLE))
            left -= take
            nibble, x, y, at = _read(models[1], context, x, y, at, words)
            size = size << take | nibble
            context, above = _below(level, length, above, nibble)
        if bit >= last:
            return False
        word = bit >> uint64(5)
        rest = uint64(plain[word]) | uint64(plain[word + uint64(1)]) << uint64(32)
        rest >>= bit & uint64(31)
        bit += left + uint64(1)
        size = size << left | ((rest >> uint64(1)) & ((uint64(1) << left) - uint64(1)))
        step = np.int64(size)
        if rest & uint64(1):
            step = -step
        out[i] = _bits_at(_wrapped(_place(old[i], half) + step, bits), half)
    return exhausted(x, y, at, words)
