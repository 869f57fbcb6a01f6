"""Sampling by the inverse of the cumulative distribution, in blocks.

`torch.multinomial` draws a random number per vocabulary entry (tens of ms for 64 rows of 49k).
Here each row draws one number: block sums find the block, a short running sum finds the entry.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

BLOCK = 256
"""Entries of a block; the nearest power of two that divides the vocabulary is used."""

COLDEST = 1e-6
"""The smallest temperature that logits are divided by: they would overflow below about 1e-37, and
here already two that differ by 1e-4 are a factor of e^100 apart."""

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that depends on (seed, position) only.

    SplitMix64 (Steele, Lea, Flood 2014, section 5), started at the mixed seed; 53 bits.
    """
    return (_mix(_mix(seed + _GAMMA) + (position + 1) * _GAMMA) >> 11) / float(1 << 53)


def _mix(x: int) -> int:
    x &= _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


@dataclass(frozen=True)
class Draw:
    """How one row is to be sampled."""

    temperature: float
    """0 is greedy."""
    top_p: float
    u: float
    """In [0, 1)."""


def sample(logits: Tensor, draws: list[Draw]) -> tuple[list[int], list[float]]:
    """Ids and natural-log probabilities, one per row. logits: (N, V) in fp32; is overwritten.

    The probability is that with which the id was sampled: after temperature and, where `top_p` is
    below 1, within the nucleus (Holtzman et al. 2020, section 3.1). Greedy rows report the
    probability at temperature 1. Raises `FloatingPointError` if a row is not finite.
    """
    if not draws:
        return [], []
    temperatures = [max(draw.temperature or 1.0, COLDEST) for draw in draws]
    if any(t != 1.0 for t in temperatures):
        logits.div_(torch.tensor(temperatures).unsqueeze(1))
    best = logits.argmax(dim=1) if any(draw.temperature == 0 for draw in draws) else None
    weights = torch.softmax(logits, dim=1, out=logits)
    size = math.gcd(weights.shape[1], BLOCK)
    if size < 32:  # such a vocabulary is padded with entries of weight 0
        size = BLOCK
        weights = torch.nn.functional.pad(weights, (0, -weights.shape[1] % size))
    blocks = weights.view(len(draws), -1, size)
    sums = blocks.sum(dim=2).double().cumsum(dim=1).numpy()
    totals = sums[:, -1]
    if not np.isfinite(totals).all():
        raise FloatingPointError("a logit is not finite: the served weights are broken")
    ids = _invert(blocks, sums, np.array([draw.u for draw in draws]))
    for i, draw in enumerate(draws):
        if draw.temperature == 0 and best is not None:
            ids[i] = int(best[i])
        elif draw.top_p < 1:
            ids[i], totals[i] = _nucleus(weights[i], draw.top_p * totals[i], draw.u)
    chosen = weights[torch.arange(len(draws)), torch.from_numpy(ids)].double().numpy()
    logprobs = np.minimum(np.log(chosen) - np.log(totals), 0.0)
    return ids.tolist(), logprobs.tolist()


def _invert(blocks: Tensor, sums: np.ndarray, u: np.ndarray) -> np.ndarray:
    """First entry whose cumulative weight exceeds u * total, per row; never one of weight 0.

    blocks: (N, B, S) weights; sums: (N, B) cumulative block sums in fp64; u: (N,).
    """
    target = u * sums[:, -1]
    rows = np.arange(len(u))
    block = np.minimum((sums <= target[:, None]).sum(axis=1), sums.shape[1] - 1)
    before = np.where(block > 0, sums[rows, block - 1], 0.0)
    entries = blocks[torch.from_numpy(rows), torch.from_numpy(block)].double().numpy()
    inside = entries.cumsum(axis=1)
    # the fp32 block sum and this fp64 one differ in the last bits: stay below the latter
    rest = np.minimum(target - before, inside[:, -1] * (1 - 1e-12))
    entry = (inside <= rest[:, None]).sum(axis=1)
    return np.asarray(block * blocks.shape[2] + entry, dtype=np.int64)


def _nucleus(weights: Tensor, mass: float, u: float) -> tuple[int, float]:
    """An id from the smallest set of best entries with at least `mass`, and the set's weight."""
    ordered, order = weights.sort(descending=True, stable=True)
    sums = ordered.double().cumsum(dim=0).numpy()
    last = min(int(np.searchsorted(sums, mass)), len(sums) - 1)
    pick = min(int(np.searchsorted(sums, u * sums[last], side="right")), last)
    return int(order[pick]), float(sums[last])
