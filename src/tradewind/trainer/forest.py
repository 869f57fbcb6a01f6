"""Samples -> micro-batches in which every shared prefix stands once.

    sample a   P P P P a a a          packed   P P P P a a a b b c c c
    sample b   P P P P b b            position 0 1 2 3 4 5 6 4 5 4 5 6
    sample c   P P P P c c c          end      -------12 ---7 -9 ---12   (exclusive)

The samples of a micro-batch form a forest: a token's parent is the token before it in its sample,
and equal prefixes are the same nodes. Packed in depth-first order, token k is an ancestor of token
q (or q itself) exactly if k <= q < end[k]. That one test is the whole attention rule. It holds for
the prompt of a group, for branches of one rollout, for equal openings of two answers, and for
unrelated documents side by side (each is a tree of its own).

The forward pass over the packed tokens computes what each sample would get alone, because a
transformer's state at a token depends on its ancestors only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

from tradewind.types import Sample

BLOCK = 128
"""Queries per attention block."""


@dataclass(frozen=True)
class Block:
    """Consecutive queries [start, stop) and every token that one of them attends to."""

    start: int
    stop: int
    keys: Tensor
    """int64 [K], ascending: the ancestors of token `start`, then start .. stop - 1."""
    mask: Tensor
    """bool [stop - start, K]: whether the key is an ancestor of the query or itself."""


@dataclass(frozen=True)
class Forest:
    """One micro-batch: T packed tokens, R rows of logits, N entries of the loss."""

    ids: Tensor
    """int64 [T]"""
    positions: Tensor
    """int64 [T], depth of the token in its sample."""
    blocks: tuple[Block, ...]
    rows: Tensor
    """int64 [R], the packed tokens whose hidden state predicts something."""
    row_temperature: Tensor
    """fp32 [R]"""
    entry_row: Tensor
    """int64 [N], index into `rows`."""
    target: Tensor
    """int64 [N], the id to be predicted."""
    behaviour: Tensor
    """fp32 [N]"""
    advantage: Tensor
    """fp32 [N]"""
    weight: Tensor
    """fp32 [N]"""
    version: Tensor
    """int64 [N], version that sampled the token."""
    same_version: Tensor
    """bool [N], whether the trained version sampled all of the entry's sample."""

    @property
    def tokens(self) -> int:
        """T, what the forward pass costs."""
        return self.ids.numel()

    def to(self, device: torch.device) -> Forest:
        """The same forest on another device."""
        if self.ids.device == device:
            return self
        moved = {f.name: getattr(self, f.name) for f in fields(self)}
        blocks = moved.pop("blocks")
        return Forest(
            blocks=tuple(
                replace(b, keys=b.keys.to(device), mask=b.mask.to(device)) for b in blocks
            ),
            **{name: tensor.to(device) for name, tensor in moved.items()},
        )


def in_prefix_order(samples: Sequence[Sample]) -> list[Sample]:
    """Samples sorted so that equal prefixes are neighbours; ties keep their order."""
    return sorted(samples, key=lambda sample: sample.ids)


def split(samples: Sequence[Sample], token_budget: int) -> list[list[Sample]]:
    """Micro-batches of at most `token_budget` packed tokens each, of about equal size.

    A prefix is packed once per micro-batch. A sample that is longer than the budget runs alone.
    """
    ordered = in_prefix_order(samples)
    total = sum(_new_tokens(ordered))
    parts = max(1, -(-total // token_budget))
    aim = -(-total // parts)
    out: list[list[Sample]] = []
    size = 0
    for index, sample in enumerate(ordered):
        added = len(sample.ids) - (
            common_prefix(ordered[index - 1].ids, sample.ids) if index and size else 0
        )
        if not out or size + added > token_budget or size >= aim:
            out.append([])
            size, added = 0, len(sample.ids)
        out[-1].append(sample)
        size += added
    return out


def plant(
    samples: Sequence[Sample], version: int, block: int = BLOCK, share: bool = True
) -> Forest:
    """Pack samples into one forest.

    Args:
        samples: at least one; each holds at least one id.
        version: the weight version being trained, for `Forest.same_version`.
        block: queries per attention block.
        share: False gives every sample a tree of its own (the slow reference).
    """
    ordered = in_prefix_order(samples)
    ids: list[np.ndarray] = []
    depths: list[np.ndarray] = []
    ends = np.zeros(sum(len(s.ids) for s in ordered), np.int64)
    paths: list[np.ndarray] = []
    count = 0
    path = np.zeros(0, np.int64)
    before: tuple[int, ...] = ()
    for sample in ordered:
        shared = common_prefix(before, sample.ids) if share else 0
        ends[path[shared:]] = count  # the previous sample's own nodes close here
        new = np.arange(count, count + len(sample.ids) - shared)
        path, before = np.concatenate([path[:shared], new]), sample.ids
        paths.append(path)
        ids.append(np.asarray(sample.ids[shared:], np.int64))
        depths.append(np.arange(shared, len(sample.ids)))
        count += len(new)
    ends[path] = count
    positions = np.concatenate(depths)
    return Forest(
        ids=torch.from_numpy(np.concatenate(ids)),
        positions=torch.from_numpy(positions),
        blocks=_blocks(paths, positions, ends[:count], block),
        **_entries(ordered, paths, version),
    )


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest common prefix of two id streams."""
    short = min(len(a), len(b))
    if a[:short] == b[:short]:
        return short
    different = np.asarray(a[:short]) != np.asarray(b[:short])
    return int(different.argmax())


def _new_tokens(ordered: Sequence[Sample]) -> list[int]:
    before: tuple[int, ...] = ()
    out = []
    for sample in ordered:
        out.append(len(sample.ids) - common_prefix(before, sample.ids))
        before = sample.ids
    return out


def _blocks(
    paths: Sequence[np.ndarray], positions: np.ndarray, ends: np.ndarray, size: int
) -> tuple[Block, ...]:
    """Every ancestor of a block's tokens is in the block or an ancestor of its first token.

    Proof: let a < start <= t with a an ancestor of t. The subtree of a is one run of the
    depth-first order and holds t, so it holds start.
    """
    total = len(positions)
    found = []
    owner = 0
    for start in range(0, total, size):
        stop = min(start + size, total)
        while paths[owner][-1] < start:
            owner += 1
        above = paths[owner][: positions[start]]
        keys = np.concatenate([above, np.arange(start, stop)])
        queries = np.arange(start, stop)[:, None]
        mask = (keys[None] <= queries) & (queries < ends[keys][None])
        found.append(Block(start, stop, torch.from_numpy(keys), torch.from_numpy(mask)))
    return tuple(found)


def _entries(
    ordered: Sequence[Sample], paths: Sequence[np.ndarray], version: int
) -> dict[str, Tensor]:
    """The loss entries; entries that read the same logits share a row."""
    columns: dict[str, list[np.ndarray]] = {}
    for sample, path in zip(ordered, paths, strict=True):
        at = np.flatnonzero(sample.mask)
        assert not len(at) or at[0] > 0, f"{sample.rollout_id}: the first id has no predecessor"
        versions = np.asarray(sample.versions, np.int64)[at]
        pure = bool(len(at)) and bool((versions == version).all())
        for name, values in {
            "source": path[at - 1],
            "temperature": np.full(len(at), sample.temperature),
            "target": np.asarray(sample.ids, np.int64)[at],
            "behaviour": np.asarray(sample.logprobs)[at],
            "advantage": np.full(len(at), sample.advantage),
            "weight": np.full(len(at), sample.weight),
            "version": versions,
            "same_version": np.full(len(at), pure),
        }.items():
            columns.setdefault(name, []).append(values)
    flat = {name: np.concatenate(values) for name, values in columns.items()}
    keys = np.stack([flat.pop("source").astype(np.float64), flat.pop("temperature")], axis=1)
    rows, entry_row = np.unique(keys, axis=0, return_inverse=True)
    return {
        "rows": torch.from_numpy(rows[:, 0].astype(np.int64)),
        "row_temperature": torch.from_numpy(rows[:, 1].astype(np.float32)),
        "entry_row": torch.from_numpy(entry_row.reshape(-1)),
        **{
            name: torch.from_numpy(v if v.dtype.kind in "ib" else v.astype(np.float32))
            for name, v in flat.items()
        },
    }
