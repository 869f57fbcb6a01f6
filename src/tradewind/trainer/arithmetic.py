"""Which number format this machine is fast in."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch

DtypeName = Literal["auto", "fp32", "bf16"]

BF16_FLAGS = frozenset({"amx_bf16", "avx512_bf16"})


def compute_dtype(name: DtypeName, device: torch.device) -> torch.dtype:
    """The dtype in which parameters are stored and multiplied.

    `auto` is bf16 on an accelerator and on a CPU with bf16 matrix units, else fp32: without those
    units a CPU multiplies bf16 several times slower than fp32. Parameters hold bf16-exact values
    either way, so both see the same weights.
    """
    if name == "bf16" or (name == "auto" and (device.type != "cpu" or cpu_has_bf16_units())):
        return torch.bfloat16
    return torch.float32


def cpu_has_bf16_units(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether the CPU lists an instruction set that multiplies bf16 directly."""
    if not cpuinfo.exists():
        return False
    for line in cpuinfo.read_text().splitlines():
        if line.startswith("flags"):
            return bool(BF16_FLAGS & set(line.split()))
    return False
