"""The codec for sparse updates: which weights changed, and by how much, given the old ones.

A weight changes in a step almost only when its ulp is small against the step: how likely it is to
change is nearly decided by its old exponent, which the receiver holds. So every exponent e of a
piece has a rate p_e, and the piece is coded as what it is under that model: a walk over the
weights, at each of which a change may strike with the probability of its exponent.

    hazard of a weight     h = -log2(1 - p_e), in units of 2**-20: its share in a halving of the
                           odds that nothing has changed so far
    walk                   w w w w w w w w w w w C w w w w w w w ...
    hazard so far          |---- window ----|----|
    symbol                 1 window survived, then a change at [from, from + h) of the next one

A window is one halving: to survive it has odds of 1/2, and within it a change is taken to be as
likely at one unit of hazard as at another (it falls by half from start to end; not to code that
costs 0.03 bits a change). The receiver reads how many windows were survived and where in the next
one the change lies, then walks its own old weights and adds hazards until it is there: one addition
a weight, and no memory but the weights.

Exponents whose rate exceeds `FLAGGED` are not walked over: each of their weights has a flag. Gaps
between changes lie in one stream, flags and new values in another, for a gap is read before and
left behind after the flags that lie in it.

    payload = varints: first exponent, exponents, walked to, changed, words of gaps
              | a rate byte for each exponent | gaps: words | steps: words

Where the size comes to lie above the entropy given the exponents is measured in
`benchmarks/codec.py`. Why exponents: Tradewind's own measurement; published formats code positions
and values without regard to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import uint64

from tradewind.weights import entropy, ulps, walk
from tradewind.weights.entropy import new_model
from tradewind.weights.kernels import forget_stale
from tradewind.weights.walk import CONTEXTS, FLAG, LONGEST, WINDOW
from tradewind.weights.walk import decode as _decode
from tradewind.weights.walk import encode as _encode
from tradewind.weights.walk import survey as _survey

forget_stale((_survey, _encode, _decode), (entropy, ulps, walk))  # before any of them is called

FLAGGED = 0.25
"""Rates above it are coded by a flag at each weight: there a change often lies on the border of two
windows, of which only one can name it."""

CROWDED = 0.25
"""Share of changed items above which this is no sparse update: the walk would take seconds for what
a link carries in less (mid-training, which publishes once)."""
OCTAVE = 8
"""Rate bytes in a doubling of the hazard: a rate is at most 4.4 % off, which costs 0.1 %."""
RATES = OCTAVE * 19
"""Rate bytes from 1 on mean hazards from 1 to less than half a window; this byte means flags."""
_FRACTIONS = (65536, 71468, 77936, 84990, 92682, 101070, 110218, 120194)
"""2**(k/8) in units of 2**-16; integers, so that all machines agree."""


def _hazards() -> npt.NDArray[np.uint64]:
    table = np.full(256, FLAG, np.uint64)
    table[0] = 0
    for byte in range(1, RATES):
        octave, k = divmod(byte - 1, OCTAVE)
        table[byte] = (_FRACTIONS[k] << octave) >> 16
    return table


HAZARDS = _hazards()
"""Rate byte -> hazard."""


@dataclass(frozen=True)
class Layout:
    """Where the exponent lies in the bits of an item."""

    shift: int
    mask: int
    """0: integers, which have no exponents and all change at one rate."""

    @property
    def is_float(self) -> bool:
        """Whether the bits are sign and magnitude."""
        return self.mask != 0


LAYOUTS = {
    "BF16": Layout(7, 0xFF),
    "F16": Layout(10, 0x1F),
    "F32": Layout(23, 0xFF),
    "F8_E4M3": Layout(3, 0xF),
    "F8_E5M2": Layout(2, 0x1F),
    "F8_E8M0": Layout(0, 0),
    "BOOL": Layout(0, 0),
    "U8": Layout(0, 0),
    "I8": Layout(0, 0),
    "U16": Layout(0, 0),
    "I16": Layout(0, 0),
    "U32": Layout(0, 0),
    "I32": Layout(0, 0),
}
"""Dtype tag -> layout; items of 8 bytes have none and are coded otherwise."""


class DamagedError(ValueError):
    """The payload is not one that `encode` makes."""


def encode(old: Any, new: Any, layout: Layout) -> bytes | None:
    """The payload that turns `old` into `new`: flat arrays of one unsigned dtype of 1 to 4 bytes.

    None if it would not be smaller than the new bytes, or if the update is `CROWDED`.
    """
    old, new = _read_only(old), _read_only(new)
    count, hit = np.zeros((2, 256), np.int64)
    _survey(old, new, uint64(layout.shift), uint64(layout.mask), count, hit)
    if int(hit.sum()) > CROWDED * new.size:
        return None
    rates = np.zeros(256, np.uint8)
    for e in np.flatnonzero(hit):
        rates[e] = _rate(int(hit[e]), int(count[e]))
    room = new.nbytes // 4 + 2 * LONGEST
    gaps, steps = np.empty(room, np.uint32), np.empty(room, np.uint32)
    words = _encode(
        old, new, _arguments(old, layout), HAZARDS[rates], new_model(CONTEXTS), gaps, steps
    )
    if words[0] < 0:
        return None
    used = np.flatnonzero(rates)
    first, end = (int(used[0]), int(used[-1]) + 1) if used.size else (0, 0)
    struck = int(hit[(rates > 0) & (rates < RATES)].sum())
    head = _varints(first, end - first, struck, int(hit.sum()), words[0])
    payload = b"".join(
        (head, rates[first:end].tobytes(), gaps[: words[0]].tobytes(), steps[: words[1]].tobytes())
    )
    return payload if len(payload) < new.nbytes else None


def decode(payload: memoryview, old: Any, layout: Layout) -> tuple[Any, Any]:
    """The changes: ascending flat indices (int64) and the new bits there.

    Raises DamagedError for a payload that is not well formed; never reads or allocates more than
    `old` and the payload account for.
    """
    (first, length, struck, changed, gap_words), at = _read_varints(payload, 5)
    body = payload[at:]
    if first + length > 256 or changed > old.size or struck > changed:
        raise DamagedError("counts that cannot be")
    if len(body) < length + 4 * gap_words or (len(body) - length) % 4:
        raise DamagedError("streams that do not fill it")
    old = _read_only(old)
    rates = np.zeros(256, np.uint8)
    rates[first : first + length] = np.frombuffer(body[:length], np.uint8)
    words = np.frombuffer(bytes(body[length:]), "<u4")
    index, bits = np.empty(changed, np.int64), np.empty(changed, old.dtype)
    found = _decode(
        old,
        _arguments(old, layout),
        HAZARDS[rates],
        new_model(CONTEXTS),
        (words[:gap_words], words[gap_words:]),
        struck,
        (index, bits),
    )
    if found != changed:
        raise DamagedError("streams that do not decode")
    return index, bits


def compile_ahead() -> None:
    """Compiles both directions for bf16; kept on disk, so that it takes ten seconds only once.

    Processes that would need it at the same moment would each do it.
    """
    old = np.full(64, 0x3C00, np.uint16)
    new = old.copy()
    new[7] += 1
    payload = encode(old, new, LAYOUTS["BF16"])
    assert payload is not None, "one change of 64 is sparse"
    decode(memoryview(payload), old, LAYOUTS["BF16"])


def _read_only(items: Any) -> Any:
    """A view that cannot be written through.

    Mapped checkpoints are read-only and decoded tensors are not; to numba these are two types, and
    it would compile everything for both.
    """
    view = items.view()
    view.flags.writeable = False
    return view


def _rate(hit: int, count: int) -> int:
    """The rate byte for `hit` changes in `count` weights."""
    p = hit / count
    if p > FLAGGED:
        return RATES
    hazard = -log2(1 - p) * WINDOW
    return min(max(1 + round(OCTAVE * log2(max(hazard, 1))), 1), RATES - 1)


def _arguments(old: Any, layout: Layout) -> tuple[Any, ...]:
    half = 1 << (8 * old.itemsize - 1) if layout.is_float else 0
    return uint64(layout.shift), uint64(layout.mask), np.int64(half), np.int64(8 * old.itemsize)


def _varints(*numbers: int) -> bytes:
    out = bytearray()
    for number in numbers:
        while number >= 128:
            out.append(number & 127 | 128)
            number >>= 7
        out.append(number)
    return bytes(out)


def _read_varints(data: memoryview, count: int) -> tuple[list[int], int]:
    numbers, at = [], 0
    for _ in range(count):
        number, shift = 0, 0
        while True:
            if at >= len(data) or shift > 56:
                raise DamagedError("a number that does not end")
            byte = data[at]
            at += 1
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        numbers.append(number)
    return numbers, at
