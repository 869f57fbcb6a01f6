"""The undo log: the last few versions, each as what differs from its neighbour.

    back  [v1  v2  v3]  here: v4  [v5  v6]  ahead        a walk moves `here` along this line

Going back and forward again needs neither the network nor a second copy of the model. A change
holds the places where a tensor differs and the bits there, or all its bits where that is no
larger. So a version costs at most a dense copy of what it changed, and about six bytes per changed
bf16 weight; the log as a whole at most `keep` times that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tradewind.types.errors import RefusedWeights
from tradewind.weights.digest import Leaf, tensor_digest
from tradewind.weights.probe import Probe
from tradewind.weights.state import State
from tradewind.weights.tensors import Array

DENSE_SHARE = 0.25
"""Share of changed values above which all bits are kept."""

Places = npt.NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True, slots=True)
class Change:
    """Bits that a tensor has at some places."""

    places: Places | None
    """Flat indices, ascending; None: everywhere."""
    bits: npt.NDArray[np.unsignedinteger[Any]]
    """Unsigned integers of the tensor's item size."""

    @classmethod
    def between(cls, here: Array, there: Array) -> Change:
        """What turns `here` into `there`."""
        old, new = _bits(here), _bits(there)
        found = np.flatnonzero(old != new)
        kind = np.dtype(np.uint32 if new.size <= 2**32 else np.uint64)
        sparse = found.size * (kind.itemsize + new.itemsize)
        if found.size > DENSE_SHARE * new.size or sparse >= new.nbytes:
            return cls(None, new.copy())
        return cls(found.astype(kind), new[found])

    @property
    def nbytes(self) -> int:
        """Memory that it holds."""
        return self.bits.nbytes + (0 if self.places is None else self.places.nbytes)

    def exchange(self, array: Array) -> Change:
        """Writes the bits into `array`; returns the change that undoes it."""
        at = slice(None) if self.places is None else self.places
        flat = _bits(array)
        undone = Change(self.places, flat[at].copy())
        flat[at] = self.bits
        return undone


@dataclass(frozen=True, slots=True)
class Leap:
    """Leads from the state beside it in the log to the state of `version`."""

    version: int
    state_id: str
    leaves: dict[str, Leaf]
    """Of the changed tensors, at `version`."""
    changes: dict[str, Change]
    probes: tuple[Probe, ...]

    @classmethod
    def between(cls, here: State, there: State) -> Leap:
        """From `here` to `there`; both have the same tensors."""
        leaves = {n: leaf for n, leaf in there.leaves.items() if here.leaves[n] != leaf}
        changes = {n: Change.between(here.tensors[n], there.tensors[n]) for n in leaves}
        return cls(there.version, there.state_id, leaves, changes, there.probes)

    @property
    def nbytes(self) -> int:
        """Memory of its changes."""
        return sum(change.nbytes for change in self.changes.values())


@dataclass(frozen=True, slots=True)
class Walk:
    """Where leaps lead, computed beside what is held; `UndoLog.commit` makes it so."""

    state: State
    changed: dict[str, Array]
    inverse: tuple[Leap, ...]
    """In the order walked; the last one stands beside `state`."""
    backwards: bool


class UndoLog:
    """The neighbours of one state. `keep` versions at most; 0 keeps none."""

    def __init__(self, keep: int = 4) -> None:
        self.keep = keep
        self._back: list[Leap] = []
        self._ahead: list[Leap] = []

    @property
    def versions(self) -> list[int]:
        """Versions that can be reached, ascending; not the current one."""
        return [leap.version for leap in (*self._back, *reversed(self._ahead))]

    @property
    def nbytes(self) -> int:
        """Memory of all changes."""
        return sum(leap.nbytes for leap in (*self._back, *self._ahead))

    def record(self, before: State, after: State) -> None:
        """`after` has followed `before` by a new way: what lay ahead is forgotten."""
        self._ahead.clear()
        if self.keep:
            self._back.append(Leap.between(after, before))
        del self._back[: max(0, len(self._back) - self.keep)]

    def clear(self) -> None:
        """Forgets everything."""
        self._back.clear()
        self._ahead.clear()

    def walk(self, here: State, version: int) -> Walk | None:
        """The state of `version`, verified; None if the log does not reach it.

        Neither `here` nor the log is changed. Raises RefusedWeights if the log is damaged.
        """
        for line in (self._back, self._ahead):
            for i, leap in enumerate(line):
                if leap.version == version:
                    return _walk(here, line[: i - 1 if i else None : -1], line is self._back)
        return None

    def commit(self, walk: Walk) -> None:
        """The walk's end is the current state."""
        behind, before = (self._back, self._ahead) if walk.backwards else (self._ahead, self._back)
        assert behind[-len(walk.inverse)].version == walk.state.version, "the log has moved"
        del behind[-len(walk.inverse) :]
        before.extend(walk.inverse)


def _walk(here: State, leaps: list[Leap], backwards: bool) -> Walk:
    version, state_id, probes = here.version, here.state_id, here.probes
    leaves = dict(here.leaves)
    arrays: dict[str, Array] = {}
    inverse: list[Leap] = []
    for leap in leaps:
        arrays |= {n: here.tensors[n].copy() for n in leap.changes if n not in arrays}
        undone = {n: change.exchange(arrays[n]) for n, change in leap.changes.items()}
        inverse.append(Leap(version, state_id, {n: leaves[n] for n in undone}, undone, probes))
        leaves |= leap.leaves
        version, state_id, probes = leap.version, leap.state_id, leap.probes
    _verify(arrays, leaves, version)
    state = here.changed(version, arrays, {name: leaves[name] for name in arrays}, probes)
    assert state.state_id == state_id, "leaves and state id were recorded together"
    return Walk(state, arrays, tuple(inverse), backwards)


def _verify(arrays: Mapping[str, Array], leaves: Mapping[str, Leaf], version: int) -> None:
    for name, array in arrays.items():
        if tensor_digest(array) != leaves[name].digest:
            raise RefusedWeights(
                f"the undo log leads to another version {version} than the one it left",
                value=name,
                fix="let the pool go on, it takes the version from the bucket instead",
            )


def _bits(array: Array) -> npt.NDArray[np.unsignedinteger[Any]]:
    """A flat view as unsigned integers: NaN equals itself, and nothing is rounded."""
    return array.reshape(-1).view(np.dtype(f"u{array.itemsize}"))
