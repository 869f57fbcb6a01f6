"""How small a lossless delta can be: entropies of what changed and by how many ulps.

    memoryless        sum over tensors of  n (H(p) + p H(ulps))
    given exponents   sum over tensors and old exponents e of  n_e (H(p_e) + p_e H(ulps | e))

p is the share of weights that changed. The counts themselves cost nothing here, so no codec that
sees these quantities only can reach a bound; one that knows more (the step before, the gradient)
may pass below it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from deltas.delta import Delta
from tradewind.weights.tensors import Array

EXPONENTS = 256
CHUNK = 2**22


def memoryless_bytes(delta: Delta) -> float:
    """The bound of every format that looks at positions and values alone."""
    return sum(_tensor(delta.old[n], delta.new[n], given=False) for n in delta.new) / 8


def exponent_bytes(delta: Delta) -> float:
    """The bound given the old exponents."""
    return sum(_tensor(delta.old[n], delta.new[n], given=True) for n in delta.new) / 8


def _tensor(old: Array, new: Array, given: bool) -> float:
    """Bits for one bf16 tensor."""
    before, after = old.reshape(-1), new.reshape(-1)
    count = np.zeros(EXPONENTS, np.int64)
    for start in range(0, before.size, CHUNK):  # bounds the memory of bincount
        count += np.bincount(_exponents(before[start : start + CHUNK]), minlength=EXPONENTS)
    at = np.flatnonzero(before != after)
    ulps = line(after[at]) - line(before[at])
    exponents = _exponents(before[at])
    if not given:
        count, exponents = np.array([before.size]), np.zeros_like(exponents)
    hit = np.bincount(exponents, minlength=count.size)
    return float(_mask_bits(count, hit) + _step_bits(exponents, ulps))


def line(bits: Array) -> npt.NDArray[np.int64]:
    """bf16 bits as whole numbers in the order of their values: one ulp is one."""
    x = bits.astype(np.int64)
    return np.where(x < 2**15, x, 2**15 - 1 - x)


def _exponents(bits: Array) -> npt.NDArray[np.int64]:
    return (bits >> 7 & 0xFF).astype(np.int64)


def _mask_bits(count: Array, hit: Array) -> float:
    """Sum of n H(p), where `hit` of `count` changed."""
    return float((_log(count) - _log(hit) - _log(count - hit)).sum())


def _step_bits(exponents: Array, ulps: Array) -> float:
    """Sum over exponents of changes times the entropy of their ulps."""
    rows = np.stack([exponents, ulps], axis=1)
    _, joint = np.unique(rows, axis=0, return_counts=True)
    return float(_log(np.bincount(exponents)).sum() - _log(joint).sum())


def _log(n: Array) -> Array:
    """n log2 n, and 0 at 0."""
    return n * np.log2(np.maximum(n, 1))
