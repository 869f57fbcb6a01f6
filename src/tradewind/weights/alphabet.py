"""Alphabets whose odds are learned while they are used: the model behind `lanes`.

A context is a row: how often each of its symbols was seen, and which share of `ONE` each one owns.
Shares are made anew of the counts only when these have grown by a quarter. In between they stand
still, so that the next symbol can be looked up before this one has been counted: odds that moved
with every symbol would make each wait for the one before.

    counts   5 80 11        shares   [0, 1700) [1700, 29000) [29000, 32768)        left   samples
                                                                                   until the next

A share is one number, its start above its size, so that shares are in the order of their starts.
All is integer arithmetic, so both ends compute the same on every machine; every symbol keeps a
share of 1 at least, so everything can be written and every number read is a symbol.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import uint64

from tradewind.weights.kernels import kernel, part

ODDS_BITS = 15
ONE = 1 << ODDS_BITS
SEEN = 16
"""What one sample adds to a count; priors are in the same units."""
LIMIT = 1 << 15
"""Counts are halved when they add up to it, so that the older samples weigh less and less."""
START = 16
"""A share has its start from this bit on."""
BEYOND = 2**32 - 1
"""Stands behind the last share: nothing lies in it."""

Row = npt.NDArray[np.uint16]
Model = tuple[npt.NDArray[np.uint32], Row, Row]
"""Shares (contexts, symbols + 1), counts (contexts, symbols), left (contexts,)."""


def new_model(prior: Row) -> Model:
    """Contexts whose symbols (contexts, symbols) were seen as often as `prior` says."""
    contexts, symbols = prior.shape
    shares = np.full((contexts, symbols + 1), BEYOND, np.uint32)
    model = shares, prior.astype(np.uint16), np.zeros(contexts, np.uint16)
    spread_all(model)
    return model


@part
def find(model: Any, context: Any, slot: Any) -> Any:
    """The symbol in whose share `slot` lies. The first ones, which are nearly all, are told apart
    by adding up comparisons: a branch would be guessed wrong.
    """
    shares = model[0]
    key = slot << uint64(START) | uint64((1 << START) - 1)
    symbol = uint64(0)
    for s in range(1, 4):
        symbol += uint64(key >= uint64(shares[context, s]))
    if symbol == uint64(3):
        while key >= uint64(shares[context, symbol + uint64(1)]):
            symbol += uint64(1)
    return symbol


@part
def learn(model: Any, context: Any, symbol: Any) -> None:
    """Counts the symbol."""
    model[1][context, symbol] += np.uint16(SEEN)
    left = model[2][context] - np.uint16(1)
    model[2][context] = left
    if left == np.uint16(0):
        spread(model, context)


@kernel
def spread(model: Any, context: Any) -> None:
    """Makes the shares of a context anew."""
    shares, counts, left = model
    symbols = uint64(counts.shape[1])
    total = uint64(0)
    for s in range(symbols):
        total += uint64(counts[context, s])
    if total >= uint64(LIMIT):
        total = uint64(0)
        for s in range(symbols):
            count = uint64(counts[context, s])
            count -= count >> uint64(1)
            counts[context, s] = count
            total += count
    scale = ((uint64(ONE) - symbols) << uint64(16)) // total
    before, start = uint64(0), uint64(0)
    for s in range(symbols):
        before += uint64(counts[context, s])
        end = s + uint64(1) + (before * scale >> uint64(16))
        if s + uint64(1) == symbols:
            end = uint64(ONE)
        shares[context, s] = start << uint64(START) | (end - start)
        start = end
    left[context] = total // uint64(4 * SEEN) + uint64(1)


@kernel
def spread_all(model: Any) -> None:
    """Makes the shares of all contexts."""
    for context in range(uint64(model[1].shape[0])):
        spread(model, context)
