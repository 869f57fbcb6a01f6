"""KV memory: lanes of equally long rows, bounded by a budget in tokens.

    lane of 128   row 0..n-1: decoding, dense      rows n..m-1: their prompt is being read
    lane of 256   ...

A sequence's longest possible length is known when it is admitted, so it gets a row that it can
never outgrow, in the lane of the next power of two. Decoding rows are dense and in batch order:
attention then reads `kv[:, :n, :, :longest]`, a view, with no gather and one call per lane.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tradewind.pool.engines.embedded.config import ModelShape
from tradewind.pool.engines.embedded.sequence import Sequence

SMALLEST = 128
"""Tokens of the shortest rows."""

USER_TOKENS = 1024
"""Tokens that are kept free for users at least, unless no row can be that long."""


def capacity_for(tokens: int, longest: int) -> int:
    """Row length of the lane that holds a sequence of `tokens`: a power of two, or `longest`."""
    assert tokens <= longest
    return min(longest, max(SMALLEST, 1 << (tokens - 1).bit_length()))


class Lane:
    """Rows of one capacity. `layers[i]`: (2, rows, kv_heads, capacity, head_dim), K then V."""

    def __init__(self, capacity: int, shape: ModelShape, dtype: torch.dtype) -> None:
        self.capacity = capacity
        self.members: list[Sequence] = []
        """By row; the first `decoding` of them decode."""
        self.decoding = 0
        self.layers: list[Tensor] = []
        self._shape, self._dtype = shape, dtype

    @property
    def rows(self) -> int:
        """Rows for which memory is held."""
        return self.layers[0].shape[1] if self.layers else 0

    def resize(self, rows: int) -> None:
        """Holds memory for `rows`, layer by layer: the surplus at any moment is one layer's."""
        assert rows >= len(self.members)
        if rows == 0:
            self.layers = []
            return
        s, kept = self._shape, len(self.members)
        for i in range(s.layers):
            # Zeroed: masked positions have probability 0, and 0 * garbage must not be NaN.
            new = torch.zeros(2, rows, s.kv_heads, self.capacity, s.head_dim, dtype=self._dtype)
            if i < len(self.layers):
                new[:, :kept].copy_(self.layers[i][:, :kept])
                self.layers[i] = new
            else:
                self.layers.append(new)

    def add(self, sequence: Sequence) -> None:
        """Gives the sequence the first free row; it is not decoding yet."""
        assert len(self.members) < self.rows and sequence.lane is None
        sequence.lane, sequence.row = self, len(self.members)
        self.members.append(sequence)

    def start_decoding(self, sequence: Sequence) -> None:
        """Moves the sequence to the end of the dense decoding rows."""
        self._exchange(sequence.row, self.decoding)
        self.decoding += 1
        sequence.decoding = True

    def stop_decoding(self, sequence: Sequence) -> None:
        """The other way round; what the sequence's row holds is worth nothing any more."""
        assert sequence.decoding and sequence.done == 0
        self.decoding -= 1
        self._exchange(sequence.row, self.decoding)
        sequence.decoding = False

    def remove(self, sequence: Sequence) -> None:
        """Frees the sequence's row and keeps the others dense."""
        if sequence.decoding:
            self.decoding -= 1
            self._exchange(sequence.row, self.decoding)
            sequence.decoding = False
        self._exchange(sequence.row, len(self.members) - 1, discard=sequence)
        self.members.pop()
        sequence.lane, sequence.row = None, -1

    def _exchange(self, a: int, b: int, discard: Sequence | None = None) -> None:
        """Exchanges two rows with what they hold; nothing of `discard` is worth copying."""
        if a == b:
            return
        first, second = self.members[a], self.members[b]
        for layer in self.layers:
            kept = None if first is discard else layer[:, a, :, : first.done].clone()
            if second is not discard:
                layer[:, a, :, : second.done].copy_(layer[:, b, :, : second.done])
            if kept is not None:
                layer[:, b, :, : first.done].copy_(kept)
        self.members[a], self.members[b] = second, first
        first.row, second.row = b, a


class KvMemory:
    """All lanes. Rows of all lanes together never hold more than `budget + spare` tokens; no row
    is longer than `longest`.
    """

    def __init__(self, shape: ModelShape, dtype: torch.dtype, budget: int) -> None:
        self.budget, self.dtype = budget, dtype
        self.longest = min(budget, shape.context)
        self.spare = max(budget // 8, min(self.longest, USER_TOKENS))
        """Tokens beyond the budget, for users (promise U1)."""
        self.lanes: dict[int, Lane] = {}
        self._shape = shape

    @property
    def held(self) -> int:
        """Tokens for which memory is held."""
        return sum(lane.capacity * lane.rows for lane in self.lanes.values())

    def place(self, sequence: Sequence, *, with_spare: bool = False) -> bool:
        """Gives the sequence a row; False if it has to wait for memory."""
        capacity = capacity_for(sequence.limit, self.longest)
        room = self.budget + (self.spare if with_spare else 0)
        if self._used() + capacity > room:
            return False
        lane = self.lanes.get(capacity)
        if lane is None:
            lane = self.lanes[capacity] = Lane(capacity, self._shape, self.dtype)
        if len(lane.members) == lane.rows:
            self._grow(lane)
        lane.add(sequence)
        return True

    def _used(self) -> int:
        return sum(lane.capacity * len(lane.members) for lane in self.lanes.values())

    def _grow(self, lane: Lane) -> None:
        """Doubles a lane, or takes what is left, after giving back what other lanes do not use."""
        total = self.budget + self.spare
        if self.held + lane.capacity > total:
            for other in self.lanes.values():
                if len(other.members) < other.rows:
                    other.resize(len(other.members))
        free = (total - self.held) // lane.capacity
        lane.resize(lane.rows + max(1, min(free, lane.rows)))
