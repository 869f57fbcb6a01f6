"""The walk of `hazard`, compiled: over the weights, from change to change.

    writer   next change ──► walk there ──► its gap ──► next change ...
    reader   gap ──► walk until its hazard is reached ──► next gap ...

Both list what they meet on the way: the weights with a flag and those that were struck, ascending.
These "marked" weights are all that may change. Weights are walked `STRIDE` at a time: their hazards
are added up and compared once, and flags are listed without a branch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import uint64

from tradewind.weights.kernels import kernel, part
from tradewind.weights.rangecoder import WIDEST, finish, first_code, narrow, pass_

WINDOW_BITS = 20
WINDOW = 1 << WINDOW_BITS
"""Units of hazard in a halving."""
MOST = 7
"""Windows survived that one symbol can name, with the place in the one after them."""
GAP_BITS = WINDOW_BITS + 1 + MOST
FLAG_BITS = 24
FLAG = 1 << FLAG_BITS
"""The "hazard" of a flagged weight: more than the true ones of a stride. Their sum is a number of
flags above `FLAG_BITS` and a hazard below."""
STRIDE = 16
"""Weights that are walked at a time."""
NEVER = 1 << 60
"""Where the walk goes when no change is left: more hazard than any tensor has."""
MANY = 1 << 16
SAMPLED = 5
"""Of a tensor of more than `MANY` weights one stride in five is counted: 80 weights, which few row
lengths divide, so that all columns have their turn."""
LONGEST = 64
"""Words that one gap can need at most, besides one for 32 windows."""


@kernel
def differing(old: Any, new: Any, found: Any) -> Any:
    """Lists the weights that change; returns how many do, or -1 if `found` has no room for them and
    a stride.
    """
    size, stride = uint64(old.size), uint64(STRIDE)
    room = uint64(found.size) - stride
    count, i = uint64(0), uint64(0)
    while i + stride <= size:
        difference = uint64(0)
        for j in range(i, i + stride):
            difference |= uint64(old[j] ^ new[j])
        if difference != uint64(0):
            for j in range(i, i + stride):
                found[count] = j
                count += uint64(old[j] != new[j])
            if count > room:
                return -1
        i += stride
    while i < size:
        found[count] = i
        count += uint64(old[i] != new[i])
        i += uint64(1)
    return np.int64(count) if count <= room else -1


@kernel
def survey(old: Any, changed: Any, shift: Any, mask: Any, count: Any, hit: Any) -> None:
    """Per exponent: weights that change, and weights (of every so manieth stride, if there are
    many: rates need no more).
    """
    size, stride = uint64(old.size), uint64(STRIDE)
    every = uint64(SAMPLED if old.size > MANY else 1)
    for k in range(uint64(changed.size)):
        hit[(uint64(old[changed[k]]) >> shift) & mask] += 1
    i = uint64(0)
    while i + stride <= size:
        for j in range(i, i + stride):
            count[(uint64(old[j]) >> shift) & mask] += 1
        i += every * stride
    for j in range(size - size % stride, size):
        count[(uint64(old[j]) >> shift) & mask] += 1
    for e in range(256):
        count[e] = max(count[e] * np.int64(every), hit[e])


@part
def _hazard(old: Any, hazards: Any, layout: Any, i: Any) -> Any:
    """Of one weight, or `FLAG`."""
    return uint64(hazards[(uint64(old[i]) >> layout[0]) & layout[1]])


@kernel
def keep_struck(old: Any, layout: Any, hazards: Any, changed: Any) -> Any:
    """Moves the changed weights that have no flag to the front of their list; returns how many."""
    count = uint64(0)
    for k in range(uint64(changed.size)):
        i = uint64(changed[k])
        changed[count] = i
        count += uint64(_hazard(old, hazards, layout, i) != uint64(FLAG))
    return np.int64(count)


@part
def _sum(old: Any, hazards: Any, layout: Any, i: Any) -> Any:
    """Of a stride from weight i on."""
    even, odd = uint64(0), uint64(0)
    for j in range(i, i + uint64(STRIDE), uint64(2)):
        even += _hazard(old, hazards, layout, j)
        odd += _hazard(old, hazards, layout, j + uint64(1))
    return even + odd


@part
def _list_flags(
    old: Any, hazards: Any, layout: Any, marked: Any, count: Any, i: Any, stop: Any
) -> Any:
    """Lists the flagged weights of [i, stop); returns how many are listed then."""
    for j in range(i, stop):
        marked[count] = j
        count += _hazard(old, hazards, layout, j) >> uint64(FLAG_BITS)
    return count


@part
def _put_gap(low: Any, width: Any, at: Any, words: Any, so_far: Any, hazard: Any) -> Any:
    """The change that lies at [so_far, so_far + hazard)."""
    window = uint64(WINDOW)
    survived = so_far >> uint64(WINDOW_BITS)
    start = so_far & (window - uint64(1))
    stop = start + hazard
    if stop > window:  # on a border: the larger part names it
        if stop - window > window - start:
            survived, start, stop = survived + uint64(1), uint64(0), stop - window
        else:
            stop = window
    whole = uint64(1 << GAP_BITS)
    while survived > uint64(MOST):
        unit = width >> uint64(GAP_BITS)
        low, width, at = narrow(low, width, at, words, whole - window, window, unit)
        survived -= uint64(MOST + 1)
    scale = uint64(MOST) - survived
    base = whole - (uint64(2 * WINDOW) << scale)
    unit = width >> uint64(GAP_BITS)
    return narrow(low, width, at, words, base + (start << scale), (stop - start) << scale, unit)


@kernel
def encode(old: Any, layout: Any, hazards: Any, struck: Any, gaps: Any, marked: Any) -> Any:
    """Lists the marked weights and writes the gaps between the struck ones; returns how many are
    listed and the words of gaps, or (-1, -1) if these grow larger than their room.
    """
    low, width, at = uint64(0), uint64(WIDEST), uint64(0)
    size, stride, below = uint64(old.size), uint64(STRIDE), uint64(FLAG - 1)
    count, i = uint64(0), uint64(0)
    for k in range(uint64(struck.size) + uint64(1)):
        goal = uint64(struck[k]) if k < uint64(struck.size) else size
        so_far = uint64(0)
        while i + stride <= goal:
            total = _sum(old, hazards, layout, i)
            if total >= uint64(FLAG):
                count = _list_flags(old, hazards, layout, marked, count, i, i + stride)
            so_far += total & below
            i += stride
        for j in range(i, goal):
            so_far += _hazard(old, hazards, layout, j) & below
        count = _list_flags(old, hazards, layout, marked, count, i, goal)
        if goal < size:
            if at + (so_far >> uint64(WINDOW_BITS + 5)) + uint64(LONGEST) > uint64(gaps.size):
                return -1, -1
            hazard = _hazard(old, hazards, layout, goal)
            low, width, at = _put_gap(low, width, at, gaps, so_far, hazard)
            marked[count] = goal
            count += uint64(1)
            i = goal + uint64(1)
    return np.int64(count), finish(low, at, gaps)


@part
def _get_gap(code: Any, width: Any, at: Any, words: Any, most: Any) -> Any:
    """Where the next change lies, as (windows survived, place in the next one, windows of them
    that the symbol at hand names), and the reader just before that symbol. More windows than
    `most` if the stream is damaged.
    """
    whole = uint64(1 << GAP_BITS)
    survived = uint64(0)
    while True:
        unit = width >> uint64(GAP_BITS)
        left = whole - min(code // unit, whole - uint64(1))
        named = uint64(0)
        for halvings in range(1, MOST + 2):  # adds up comparisons: a loop that ends early guesses
            named += uint64(left <= whole >> uint64(halvings))
        if named <= uint64(MOST):
            place = ((whole >> named) - left) >> (uint64(MOST) - named)
            return survived + named, place, named, code, width, at
        code, width, at = pass_(
            code, width, at, words, whole - uint64(WINDOW), uint64(WINDOW), unit
        )
        survived += uint64(MOST + 1)
        if survived > most:
            return survived, uint64(0), uint64(0), code, width, at


@part
def _ahead(old: Any, layout: Any, hazards: Any, marked: Any, count: Any, i: Any, goal: Any) -> Any:
    """From weight i on: the weight in whose hazard `goal` lies (or the size, if there is none), the
    hazard up to it, and how many marked weights are listed then: more than there is room for, less
    a stride, if the stream is damaged.
    """
    size, stride, below = uint64(old.size), uint64(STRIDE), uint64(FLAG - 1)
    room = uint64(marked.size) - stride
    so_far = uint64(0)
    while i + stride <= size:
        total = _sum(old, hazards, layout, i)
        reached = so_far + (total & below)
        if reached > goal or count > room:
            break
        if total >= uint64(FLAG):
            count = _list_flags(old, hazards, layout, marked, count, i, i + stride)
        so_far = reached
        i += stride
    while i < size and count <= room:
        hazard = _hazard(old, hazards, layout, i)
        reached = so_far + (hazard & below)
        if reached > goal:
            break
        marked[count] = i
        count += hazard >> uint64(FLAG_BITS)
        so_far = reached
        i += uint64(1)
    return i, so_far, count


@kernel
def decode(old: Any, layout: Any, hazards: Any, gaps: Any, struck: Any, marked: Any) -> Any:
    """Lists the marked weights, in whose list there must be room for a stride more; returns how
    many there are, or -1 for a damaged stream.
    """
    code, width, at = first_code(gaps), uint64(WIDEST), uint64(2)
    window, whole = uint64(WINDOW), uint64(1 << GAP_BITS)
    most = uint64(old.size // 2 + 2)  # no hazard exceeds half of a window
    room, size = uint64(marked.size) - uint64(STRIDE), uint64(old.size)
    count, i = uint64(0), uint64(0)
    for _ in range(struck):
        survived, place, named, code, width, at = _get_gap(code, width, at, gaps, most)
        if survived > most:
            return -1
        base = survived << uint64(WINDOW_BITS)
        i, so_far, count = _ahead(old, layout, hazards, marked, count, i, base + place)
        if i >= size or count >= room:
            return -1
        start = so_far - base if so_far > base else uint64(0)
        stop = min(so_far + _hazard(old, hazards, layout, i) - base, window)
        scale = uint64(MOST) - named
        begin = whole - (uint64(2 * WINDOW) << scale) + (start << scale)
        unit = width >> uint64(GAP_BITS)
        code, width, at = pass_(code, width, at, gaps, begin, (stop - start) << scale, unit)
        marked[count] = i
        count += uint64(1)
        i += uint64(1)
    _, _, count = _ahead(old, layout, hazards, marked, count, i, uint64(NEVER))
    return np.int64(count) if count <= room else -1
