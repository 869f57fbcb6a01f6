"""The prefix cache: KV of leading blocks of prompts, so that a shared prefix is computed once.

A block is found by (the block before it, its ids), compared exactly, so a block stands for the
whole prefix that ends in it. All blocks belong to one weight version: a swap empties the cache,
and a sequence that has lived through a swap neither finds nor leaves anything here.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import torch
from torch import Tensor

from tradewind.pool.engines.embedded.sequence import Sequence

BLOCK = 16
"""Tokens of a block."""

ROOT = 0
_Key = tuple[int, tuple[int, ...]]


@dataclass(frozen=True)
class Block:
    """KV of `BLOCK` tokens in all layers: (layers, 2, kv_heads, BLOCK, head_dim)."""

    id: int
    kv: Tensor


class PrefixCache:
    """Blocks of the current version, the least recently used dropped first."""

    def __init__(self, budget: int) -> None:
        self._room = budget // BLOCK
        self._blocks: OrderedDict[_Key, Block] = OrderedDict()
        self._last = ROOT
        self.version = -1
        self.hits = 0
        """Tokens that were not computed again, since the start."""

    def __len__(self) -> int:
        return len(self._blocks)

    def turn_to(self, version: int) -> None:
        """Forgets everything: KV of another version is never served to a new request."""
        self._blocks.clear()
        self.version = version

    def covered(self, ids: list[int]) -> int:
        """How many leading ids a new request with these ids would not have to compute."""
        return len(self._chain(ids)) * BLOCK

    def load(self, sequence: Sequence) -> None:
        """Copies the longest known prefix into the sequence's (empty) row."""
        assert sequence.done == 0 and sequence.lane is not None
        sequence.kv_version = self.version
        chain = self._chain(sequence.ids)
        if not chain:
            return
        kv = torch.cat([block.kv for block in chain], dim=3)
        sequence.done = len(chain) * BLOCK
        for layer, part in zip(sequence.lane.layers, kv, strict=True):
            layer[:, sequence.row, :, : sequence.done].copy_(part)
        sequence.chain = [block.id for block in chain]
        self.hits += sequence.done

    def store(self, sequence: Sequence) -> None:
        """Keeps the sequence's full blocks that are not known yet, if one version computed them."""
        if sequence.kv_version != self.version or sequence.lane is None or self._room == 0:
            return
        row, parent, chain = sequence.row, ROOT, []
        for start in range(0, sequence.done - BLOCK + 1, BLOCK):
            key = (parent, tuple(sequence.ids[start : start + BLOCK]))
            block = self._blocks.get(key)
            if block is None:
                layers = [kv[:, row, :, start : start + BLOCK] for kv in sequence.lane.layers]
                self._last += 1
                block = self._blocks[key] = Block(self._last, torch.stack(layers))
            chain.append(key)
            parent = block.id
        sequence.chain = [self._blocks[key].id for key in chain]
        self._touch(chain)
        while len(self._blocks) > self._room:
            self._blocks.popitem(last=False)

    def _chain(self, ids: list[int]) -> list[Block]:
        """Blocks of the longest known prefix that leaves at least one id to compute."""
        chain: list[Block] = []
        keys: list[_Key] = []
        parent = ROOT
        for start in range(0, len(ids) - BLOCK, BLOCK):
            key = (parent, tuple(ids[start : start + BLOCK]))
            block = self._blocks.get(key)
            if block is None:
                break
            chain.append(block)
            keys.append(key)
            parent = block.id
        self._touch(keys)
        return chain

    def _touch(self, chain: list[_Key]) -> None:
        """Leaves become older than what they hang on, so that leaves go first."""
        for key in reversed(chain):
            self._blocks.move_to_end(key)
