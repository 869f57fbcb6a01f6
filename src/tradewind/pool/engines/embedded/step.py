"""A step: which ids go through the model together, and where their KV lies.

batch rows   | lane 128, rows 0..n-1 | lane 256, rows 0..m-1 | prompt part | prompt part |
             |------ decodes: one id per sequence -----------|--- prompts: many ids -----|
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tradewind.pool.engines.embedded.kv import Lane
from tradewind.pool.engines.embedded.prefix import BLOCK
from tradewind.pool.engines.embedded.sequence import Sequence

SHARE_ROWS, SHARE_BLOCKS = 4, 4
"""From so many rows and blocks on, reading a shared prefix once beats a second attention call."""


@dataclass(frozen=True)
class DecodeSpan:
    """The decoding rows of one lane, one id each."""

    lane: Lane
    start: int
    """First batch row."""
    count: int
    longest: int
    """Keys that the longest row sees, its own included."""
    rows: Tensor
    """(count,): 0 .. count - 1."""
    positions: Tensor
    """(count,): where each row's new KV goes."""
    mask: Tensor | None
    """(count, 1, 1, longest - shared), additive; None if all rows are equally long."""
    shared: int
    """Leading keys that are the same in all rows, worth reading once for all of them."""


@dataclass(frozen=True)
class PromptSpan:
    """Equally long parts of prompts that are equally far, one after the other in the batch."""

    lane: Lane
    rows: Tensor
    """(n,): of the lane, one for each prompt."""
    start: int
    """First batch row."""
    count: int
    """Ids of each part."""
    past: int
    """Ids of each sequence whose KV is there already."""
    mask: Tensor | None
    """(count, past + count), additive; None if nothing is past."""


@dataclass(frozen=True)
class Step:
    """What `Model.forward` computes."""

    ids: Tensor
    positions: Tensor
    longest: int
    """All positions are below it."""
    decodes: tuple[DecodeSpan, ...]
    prompts: tuple[PromptSpan, ...]
    last_rows: Tensor | None
    """Batch rows whose next id is sampled; None for all of them."""
    sampled: tuple[Sequence, ...]
    """The sequences of those rows, in that order."""
    advanced: tuple[tuple[Sequence, int], ...]
    """How many ids of each sequence gain KV."""


def plan(lanes: list[Lane], parts: list[tuple[Sequence, int]], dtype: torch.dtype) -> Step:
    """Lays out one step: all decoding rows of `lanes`, then `parts` (sequence, ids to read)."""
    ids: list[int] = []
    positions: list[int] = []
    sampled: list[Sequence] = []
    advanced: list[tuple[Sequence, int]] = []
    decodes: list[DecodeSpan] = []
    for lane in lanes:
        if lane.decoding:
            decodes.append(_decode_span(lane, len(ids), dtype))
            members = lane.members[: lane.decoding]
            ids += [s.ids[-1] for s in members]
            positions += [s.done for s in members]
            sampled += members
            advanced += [(s, 1) for s in members]
    last_rows = list(range(len(ids)))
    prompts: list[PromptSpan] = []
    for alike in _alike(parts):
        prompts.append(_prompt_span(alike, len(ids), dtype))
        for s, count in alike:
            ids += s.ids[s.done : s.done + count]
            positions += range(s.done, s.done + count)
            advanced.append((s, count))
            if count == s.pending:
                sampled.append(s)
                last_rows.append(len(ids) - 1)
    return Step(
        ids=torch.tensor(ids),
        positions=torch.tensor(positions),
        longest=max(positions) + 1,
        decodes=tuple(decodes),
        prompts=tuple(prompts),
        last_rows=torch.tensor(last_rows, dtype=torch.int64) if prompts else None,
        sampled=tuple(sampled),
        advanced=tuple(advanced),
    )


def _decode_span(lane: Lane, start: int, dtype: torch.dtype) -> DecodeSpan:
    members = lane.members[: lane.decoding]
    positions = torch.tensor([s.done for s in members])
    longest, shared = int(positions.max()) + 1, _shared(members)
    mask = None
    if int(positions.min()) + 1 < longest:
        hidden = torch.arange(shared, longest) > positions.unsqueeze(1)
        mask = _additive(hidden, dtype).view(lane.decoding, 1, 1, longest - shared)
    rows = torch.arange(lane.decoding)
    return DecodeSpan(lane, start, lane.decoding, longest, rows, positions, mask, shared)


def _alike(parts: list[tuple[Sequence, int]]) -> list[list[tuple[Sequence, int]]]:
    """Parts that one attention call can compute: of one lane, equally long, equally far."""
    groups: dict[tuple[int, int, int], list[tuple[Sequence, int]]] = {}
    for s, count in parts:
        assert s.lane is not None
        groups.setdefault((s.lane.capacity, s.done, count), []).append((s, count))
    return list(groups.values())


def _prompt_span(alike: list[tuple[Sequence, int]], start: int, dtype: torch.dtype) -> PromptSpan:
    first, count = alike[0]
    assert first.lane is not None
    rows = torch.tensor([s.row for s, _ in alike])
    mask = _causal(count, first.done, dtype) if first.done else None
    return PromptSpan(first.lane, rows, start, count, first.done, mask)


def _shared(members: list[Sequence]) -> int:
    """Length of the prefix whose KV all members took from the same blocks, if it is worth it."""
    if len(members) < SHARE_ROWS:
        return 0
    chains = [s.chain for s in members]
    blocks = 0
    for low, high in zip(min(chains), max(chains), strict=False):
        if low != high:
            break
        blocks += 1
    return blocks * BLOCK if blocks >= SHARE_BLOCKS else 0


def _causal(count: int, past: int, dtype: torch.dtype) -> Tensor:
    """Row i sees keys 0 .. past + i."""
    hidden = torch.arange(past + count) > torch.arange(past, past + count).unsqueeze(1)
    return _additive(hidden, dtype)


def _additive(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, float("-inf"))
