"""Which number format this machine is fast in."""

from __future__ import annotations

from typing import Literal

import torch

DtypeName = Literal["auto", "fp32", "bf16"]

BF16_UNITS = ("amx_bf16", "avx512_bf16")
"""Instruction sets that multiply bf16 directly."""


def compute_dtype(name: DtypeName, device: torch.device) -> torch.dtype:
    """The dtype in which parameters are stored and multiplied.

    `auto` is bf16 on an accelerator and on a CPU with bf16 units, else fp32: without those units a
    CPU multiplies bf16 several times slower than fp32. Parameters hold bf16-exact values either
    way, so both see the same weights.
    """
    if name == "auto":
        cpu = torch.cpu.get_capabilities() if device.type == "cpu" else {}
        fast = device.type != "cpu" or any(cpu.get(unit) for unit in BF16_UNITS)
        return torch.bfloat16 if fast else torch.float32
    return torch.bfloat16 if name == "bf16" else torch.float32
