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

Exponents whose rate exceeds `FLAGGED` are not walked over: each of their weights is marked, as each
weight is that was struck. Marked weights are listed first; then their steps are read in a loop that
has no walk in it, and of which 0 is one (see `ulps`).

    payload = varints: first exponent, exponents, struck, marked, words of gaps, plain bytes
              | a rate byte for each exponent | gaps: words | plain bits: bytes | symbols: words

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

from tradewind.weights import alphabet, lanes, rangecoder, ulps, walk
from tradewind.weights.kernels import forget_stale
from tradewind.weights.walk import FLAG, LONGEST, STRIDE, WINDOW

KERNELS = (
    walk.differing,
    walk.survey,
    walk.keep_struck,
    walk.encode,
    walk.decode,
    ulps.encode,
    ulps.decode,
    lanes.push_all,
    alphabet.spread_all,
)
"""All that is called from here."""
forget_stale(KERNELS, (alphabet, lanes, rangecoder, ulps, walk))  # before any of them is called

FLAGGED = 1 / 8
"""Rates above it are coded by a flag at each weight: a walk to the next change takes as long as so
many flags. And a change often lies on the border of two windows, of which only one can name it."""

CROWDED = 0.25
"""Share of changed items above which this is no sparse update: the walk would take seconds for what
a link carries in less (mid-training, which publishes once)."""
OCTAVE = 8
"""Rate bytes in a doubling of the hazard: a rate is at most 4.4 % off, which costs 0.1 %."""
RATES = OCTAVE * 19
"""Rate bytes from 1 on mean hazards from 1 to less than half a window; this byte means flags."""
_FRACTIONS = (65536, 71468, 77936, 84990, 92682, 101070, 110218, 120194)
"""2**(k/8) in units of 2**-16; integers, so that all machines agree."""


def _hazards() -> npt.NDArray[np.uint32]:
    table = np.full(256, FLAG, np.uint32)
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
    assert old.size < 2**32, "places have 32 bits"
    old, new = _read_only(old), _read_only(new)
    found = np.empty(int(CROWDED * new.size) + STRIDE, np.uint32)
    changes = walk.differing(old, new, found)
    if changes < 0:
        return None
    arguments, changed = _arguments(old, layout), found[:changes]
    rates = _rates(old, changed, layout)
    hazards = HAZARDS[rates]
    struck = changed[: walk.keep_struck(old, arguments, hazards, changed)]
    gaps = np.empty(new.nbytes // 4 + 2 * LONGEST, np.uint32)
    marked = np.empty(old.size + STRIDE, np.uint32)
    marks, gap_words = walk.encode(old, arguments, hazards, struck, gaps, marked)
    if marks < 0:
        return None
    words, plain = _steps(old, new, arguments, marked[:marks], changes, rates)
    used = np.flatnonzero(rates)
    first, end = (int(used[0]), int(used[-1]) + 1) if used.size else (0, 0)
    head = _varints(first, end - first, struck.size, marks, gap_words, len(plain))
    payload = b"".join(
        (head, rates[first:end].tobytes(), gaps[:gap_words].tobytes(), plain, words.tobytes())
    )
    return payload if len(payload) < new.nbytes else None


def _rates(old: Any, changed: Any, layout: Layout) -> npt.NDArray[np.uint8]:
    """The rate byte of each exponent."""
    count, hit = np.zeros((2, 256), np.int64)
    walk.survey(old, changed, uint64(layout.shift), uint64(layout.mask), count, hit)
    rates = np.zeros(256, np.uint8)
    for e in np.flatnonzero(hit):
        rates[e] = _rate(int(hit[e]), int(count[e]))
    return rates


def _steps(
    old: Any, new: Any, arguments: tuple[Any, ...], marked: Any, changes: int, rates: Any
) -> tuple[npt.NDArray[np.uint32], bytes]:
    """Words of symbols and bytes of plain bits for the marked weights."""
    if marked.size == 0:
        return np.empty(0, np.uint32), b""
    bits = 8 * old.itemsize
    shares = np.empty(marked.size + ulps.MOST_SHARES * changes, np.uint32)
    plain = np.zeros(changes * bits // 32 + 2, np.uint32)
    models = ulps.new_models(rates == RATES, bits)
    lengths = np.empty(marked.size, np.uint8)
    count, filled = ulps.encode(old, new, arguments, marked, lengths, models, shares, plain)
    words = np.empty(count // 2 + lanes.HEAD + 1, np.uint32)
    begin = lanes.push_all(shares, count, words)
    return words[begin:], plain.view(np.uint8)[: (filled + 7) // 8].tobytes()


def decode(payload: memoryview, old: Any, out: Any, layout: Layout) -> None:
    """Writes the changed items into `out`, which holds the old ones or is `old` itself.

    Raises DamagedError for a payload that is not well formed, when `out` is undefined; never reads
    or allocates more than `old` and the payload account for.
    """
    (first, length, struck, marks, gap_words, plain_bytes), at = _read_varints(payload, 6)
    body = payload[at:]
    if first + length > 256 or marks > old.size or struck > marks:
        raise DamagedError("counts that cannot be")
    left = len(body) - length - 4 * gap_words - plain_bytes
    if left < 0 or left % 4:
        raise DamagedError("streams that do not fill it")
    old, arguments = _read_only(old), _arguments(old, layout)
    rates = np.zeros(256, np.uint8)
    rates[first : first + length] = np.frombuffer(body[:length], np.uint8)
    gaps, plain, words = _words(body[length:], 4 * gap_words, plain_bytes)
    marked = np.empty(marks + STRIDE, np.uint32)
    if walk.decode(old, arguments, HAZARDS[rates], gaps, struck, marked) != marks:
        raise DamagedError("gaps that do not decode")
    if marks == 0 and words.size == 0:
        return
    models = ulps.new_models(rates == RATES, 8 * old.itemsize)
    lengths = np.empty(marks, np.uint8)
    if not ulps.decode(old, out, arguments, marked[:marks], lengths, models, words, plain):
        raise DamagedError("steps that do not decode")


def _words(body: memoryview, gap_bytes: int, plain_bytes: int) -> tuple[Any, Any, Any]:
    """The three streams as words; two words of zeros more for the plain one."""
    after = gap_bytes + plain_bytes
    plain = np.zeros(plain_bytes // 4 + 2, np.uint32)
    plain.view(np.uint8)[:plain_bytes] = np.frombuffer(body[gap_bytes:after], np.uint8)
    gaps, symbols = bytes(body[:gap_bytes]), bytes(body[after:])
    return np.frombuffer(gaps, "<u4"), plain, np.frombuffer(symbols, "<u4")


def compile_ahead() -> None:
    """Compiles both directions for bf16; kept on disk, so that it takes ten seconds only once.

    Processes that would need it at the same moment would each do it.
    """
    old = np.full(64, 0x3C00, np.uint16)
    new = old.copy()
    new[7] += 1
    payload = encode(old, new, LAYOUTS["BF16"])
    assert payload is not None, "one change of 64 is sparse"
    decode(memoryview(payload), old, new, LAYOUTS["BF16"])


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
