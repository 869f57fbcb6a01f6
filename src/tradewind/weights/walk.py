"""The walk of `hazard`, compiled: over the weights, from change to change.

    writer   still ──► change or flag ──► gap, flag, step ──► still ...
    reader   gap ──► walk there ──► flag or change ──► step ──► gap ...

"Still" weights are walked `STRIDE` at a time: their hazards are added up and compared once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, uint64

from tradewind.weights.entropy import (
    WIDEST,
    finish,
    first_code,
    get_bit,
    narrow,
    pass_,
    put_bit,
)
from tradewind.weights.ulps import CONTEXTS as STEP_CONTEXTS
from tradewind.weights.ulps import bits_at, get_step, place_of, put_step, wrapped

WINDOW_BITS = 20
WINDOW = 1 << WINDOW_BITS
"""Units of hazard in a halving."""
MOST = 7
"""Windows survived that one symbol can name, with the place in the one after them."""
GAP_BITS = WINDOW_BITS + 1 + MOST
FLAG = 1 << 56
"""The "hazard" of a flagged weight: it always stops the walk."""
NEVER = 1 << 55
"""Where the walk goes when no change is left: more hazard than any tensor has, less than a flag."""
STRIDE = 16
"""Weights that are walked at a time where nothing happens."""
MANY = 1 << 16
SAMPLED = 5
"""Of a tensor of more than `MANY` weights one stride in five is counted: 80 weights, which few row
lengths divide, so that all columns have their turn."""
LONGEST = 64
"""Words that one change can need at most, in either stream, besides one for 32 windows."""
CONTEXTS = STEP_CONTEXTS + 256
"""Contexts of a model: those of steps, then a flag for each exponent."""


@njit(cache=True, nogil=True)
def survey(old: Any, new: Any, shift: Any, mask: Any, count: Any, hit: Any) -> None:
    """Per exponent: weights that change, and weights (of every so manieth stride, if there are
    many: rates need no more).
    """
    size, stride = uint64(old.size), uint64(STRIDE)
    every = uint64(SAMPLED if old.size > MANY else 1)
    i, turn = uint64(0), uint64(0)
    while i + stride <= size:
        difference = uint64(0)
        for j in range(i, i + stride):
            difference |= uint64(old[j] ^ new[j])
        if difference != uint64(0):
            for j in range(i, i + stride):
                hit[(uint64(old[j]) >> shift) & mask] += np.int64(old[j] != new[j])
        turn += uint64(1)
        if turn == every:
            turn = uint64(0)
            for j in range(i, i + stride):
                count[(uint64(old[j]) >> shift) & mask] += 1
        i += stride
    while i < size:
        e = (uint64(old[i]) >> shift) & mask
        count[e] += 1
        hit[e] += np.int64(old[i] != new[i])
        i += uint64(1)
    for e in range(256):
        count[e] = max(count[e] * np.int64(every), hit[e])


@njit(cache=True, nogil=True, inline="always")
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


@njit(cache=True, nogil=True, inline="always")
def _sum(old: Any, hazards: Any, shift: Any, mask: Any, i: Any) -> Any:
    """The hazard of a stride from weight i on."""
    even, odd = uint64(0), uint64(0)
    for j in range(i, i + uint64(STRIDE), uint64(2)):
        even += hazards[(uint64(old[j]) >> shift) & mask]
        odd += hazards[(uint64(old[j + uint64(1)]) >> shift) & mask]
    return even + odd


@njit(cache=True, nogil=True, inline="always")
def _still(old: Any, new: Any, layout: Any, hazards: Any, i: Any, so_far: Any) -> Any:
    """From weight i on: the next weight that changes or has a flag (or the size, if there is none),
    and the hazard up to it.
    """
    shift, mask = layout[0], layout[1]
    size, stride, flag = uint64(old.size), uint64(STRIDE), uint64(FLAG)
    while i + stride <= size:
        difference = uint64(0)
        for j in range(i, i + stride):
            difference |= uint64(old[j] ^ new[j])
        if difference != uint64(0):
            break
        total = _sum(old, hazards, shift, mask, i)
        if total >= flag:
            break
        so_far += total
        i += stride
    while i < size:
        hazard = hazards[(uint64(old[i]) >> shift) & mask]
        if hazard == flag or old[i] != new[i]:
            break
        so_far += hazard
        i += uint64(1)
    return i, so_far


@njit(cache=True, nogil=True)
def encode(
    old: Any, new: Any, layout: Any, hazards: Any, model: Any, gaps: Any, steps: Any
) -> tuple[int, int]:
    """Fills both streams; returns their words, or (-1, -1) if they grow larger than the tensor."""
    shift, mask, half, bits = layout
    gap_low, gap_width, gap_at = uint64(0), uint64(WIDEST), uint64(0)
    step_low, step_width, step_at = uint64(0), uint64(WIDEST), uint64(0)
    flag = uint64(FLAG)
    so_far, i, size = uint64(0), uint64(0), uint64(old.size)
    while True:
        i, so_far = _still(old, new, layout, hazards, i, so_far)
        if i >= size:
            break
        e = (uint64(old[i]) >> shift) & mask
        hazard, changed = hazards[e], old[i] != new[i]
        survived = so_far >> uint64(WINDOW_BITS)
        if gap_at + (survived >> uint64(5)) + uint64(LONGEST) > uint64(gaps.size):
            return -1, -1
        if step_at + uint64(LONGEST) > uint64(steps.size):
            return -1, -1
        if hazard != flag:
            gap_low, gap_width, gap_at = _put_gap(gap_low, gap_width, gap_at, gaps, so_far, hazard)
            so_far = uint64(0)
        else:
            step_low, step_width, step_at = put_bit(
                step_low, step_width, step_at, steps, model, uint64(STEP_CONTEXTS) + e, changed
            )
        if changed:
            step = wrapped(place_of(new[i], half) - place_of(old[i], half), bits)
            step_low, step_width, step_at = put_step(
                step_low, step_width, step_at, steps, model, e, step
            )
        i += uint64(1)
    return finish(gap_low, gap_at, gaps), finish(step_low, step_at, steps)


@njit(cache=True, nogil=True, inline="always")
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


@njit(cache=True, nogil=True, inline="always")
def _ahead(old: Any, layout: Any, hazards: Any, i: Any, so_far: Any, goal: Any) -> Any:
    """From weight i on: the weight in whose hazard `goal` lies, or the next one with a flag (or the
    size, if there is none), and the hazard up to it.
    """
    shift, mask = layout[0], layout[1]
    size, stride = uint64(old.size), uint64(STRIDE)
    while i + stride <= size:
        reached = so_far + _sum(old, hazards, shift, mask, i)
        if reached > goal:
            break
        so_far = reached
        i += stride
    while i < size:
        reached = so_far + hazards[(uint64(old[i]) >> shift) & mask]
        if reached > goal:
            break
        so_far = reached
        i += uint64(1)
    return i, so_far


@njit(cache=True, nogil=True)
def decode(
    old: Any, layout: Any, hazards: Any, model: Any, streams: Any, struck: Any, found: Any
) -> int:
    """Fills index and bits of `found`; returns how many there are, or -1 for a damaged stream."""
    shift, mask, half, size = layout
    gaps, steps = streams
    index, bits = found
    gap_code, gap_width, gap_at = first_code(gaps), uint64(WIDEST), uint64(2)
    step_code, step_width, step_at = first_code(steps), uint64(WIDEST), uint64(2)
    flag, window, whole = uint64(FLAG), uint64(WINDOW), uint64(1 << GAP_BITS)
    most = uint64(old.size // 2 + 2)  # no hazard exceeds half of a window
    count, left, i, end = 0, struck, uint64(0), uint64(old.size)
    so_far, base, goal, named = uint64(0), uint64(0), uint64(NEVER), uint64(0)
    due = left > 0
    while True:
        if due:
            survived, place, named, gap_code, gap_width, gap_at = _get_gap(
                gap_code, gap_width, gap_at, gaps, most
            )
            if survived > most:
                return -1
            due, so_far, base = False, uint64(0), survived << uint64(WINDOW_BITS)
            goal = base + place
        i, so_far = _ahead(old, layout, hazards, i, so_far, goal)
        if i >= end:
            break
        e = (uint64(old[i]) >> shift) & mask
        hazard = hazards[e]
        if hazard == flag:
            hit, step_code, step_width, step_at = get_bit(
                step_code, step_width, step_at, steps, model, uint64(STEP_CONTEXTS) + e
            )
            if not hit:
                i += uint64(1)
                continue
        else:
            start = so_far - base if so_far > base else uint64(0)
            stop = min(so_far + hazard - base, window)
            scale = uint64(MOST) - named
            gap_code, gap_width, gap_at = pass_(
                gap_code,
                gap_width,
                gap_at,
                gaps,
                whole - (uint64(2 * WINDOW) << scale) + (start << scale),
                (stop - start) << scale,
                gap_width >> uint64(GAP_BITS),
            )
            left -= 1
            due, goal = left > 0, uint64(NEVER)
        step, step_code, step_width, step_at = get_step(
            step_code, step_width, step_at, steps, model, e, size
        )
        if step == 0 or count >= index.size:
            return -1
        index[count] = i
        bits[count] = bits_at(wrapped(place_of(old[i], half) + step, size), half)
        count += 1
        i += uint64(1)
    return count if left == 0 else -1
