"""A recorded delta: the bf16 weights before and after one step of a run.

FOLDER/lr5e-6_step0/old.safetensors, new.safetensors
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tradewind.weights.checkpoint import read_file, write_file
from tradewind.weights.tensors import TensorSet


@dataclass(frozen=True)
class Delta:
    """Both tensor sets have the same names, shapes and dtypes."""

    name: str
    """`lr<rate>_step<0-based step>`."""
    old: TensorSet
    new: TensorSet

    @property
    def nbytes(self) -> int:
        """Of a dense copy."""
        return self.new.nbytes

    def changed(self) -> int:
        """Weights that differ."""
        return sum(int(np.count_nonzero(self.old[n] != self.new[n])) for n in self.new)

    def weights(self) -> int:
        """All weights."""
        return sum(array.size for array in self.new.values())

    def write(self, folder: Path) -> None:
        """Below `folder`, under its name."""
        own = folder / self.name
        own.mkdir(parents=True, exist_ok=True)
        write_file(own / "old.safetensors", self.old)
        write_file(own / "new.safetensors", self.new)

    @staticmethod
    def read(folder: Path) -> Delta:
        """The delta in `folder`, mapped and then copied: timing must not meet the disk."""
        old, new = (_resident(folder / f"{name}.safetensors") for name in ("old", "new"))
        return Delta(folder.name, old, new)


def recorded(folder: Path) -> list[Path]:
    """Folders of the complete deltas in `folder`, sorted by name."""
    return sorted(path.parent for path in folder.glob("*/new.safetensors"))


def _resident(path: Path) -> TensorSet:
    mapped = read_file(path)
    return TensorSet(
        {name: np.array(mapped[name]) for name in mapped},
        {name: mapped.tag(name) for name in mapped},
    )
