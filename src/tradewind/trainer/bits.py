"""bf16 weights as bits: numpy knows no bf16, so what is published are uint16 arrays."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from tradewind.weights.tensors import Array


def bits_of(tensor: Tensor) -> Array:
    """A tensor of bf16-exact values as uint16 bits of its shape, in memory of their own."""
    flat = tensor.detach().reshape(-1)
    if flat.device.type == "cpu" and flat.dtype == torch.float32:
        # the upper halves, taken without torch's threads: the step's would wait for them
        bits: Array = flat.numpy().view("<u2")[1::2].copy()
    else:
        bits = flat.to(torch.bfloat16).cpu().view(torch.uint16).numpy().copy()
    return bits.reshape(tensor.shape)


def from_bits(array: Array) -> Tensor:
    """uint16 bits as a bf16 tensor of the same shape, in memory of its own."""
    return torch.from_numpy(np.array(array)).view(torch.bfloat16)
