"""Scoring: the log-probabilities of given ids, computed beside everything that runs.

    sequences ──► a lane of their own ──► one step of prompts without a past ──► log softmax

The path is that of a prompt: the same stacks, norms, rotary table and attention that serve
requests, so what is wrong there is wrong here. No row of the KV memory is taken and no block of
the prefix cache is read or left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from tradewind.pool.engines.embedded.kv import Lane
from tradewind.pool.engines.embedded.model import Model
from tradewind.pool.engines.embedded.step import PromptSpan, Step

ROWS = 192
"""Ids that one step reads, unless one sequence is longer: as short as a step with prompts."""


def score(model: Model, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
    """See `Engine.score`; called by the thread that decodes."""
    return [row for part in _parts(sequences) for row in _score(model, part)]


def _parts(sequences: Sequence[Sequence[int]]) -> Iterator[list[Sequence[int]]]:
    part: list[Sequence[int]] = []
    for ids in sequences:
        if part and sum(map(len, part)) + len(ids) > ROWS:
            yield part
            part = []
        part.append(ids)
    if part:
        yield part


def _score(model: Model, part: list[Sequence[int]]) -> list[list[float]]:
    """One forward pass. The logits of R ids are (R, vocab) in fp32."""
    longest = max(map(len, part))
    lane = Lane(longest, model.shape, model.dtype)
    lane.resize(len(part))
    spans: list[PromptSpan] = []
    rows: list[int] = []
    start = 0
    for row, ids in enumerate(part):
        spans.append(PromptSpan(lane, torch.tensor([row]), start, len(ids), 0, None))
        rows += range(start, start + len(ids) - 1)
        start += len(ids)
    step = Step(
        ids=torch.tensor([i for ids in part for i in ids]),
        positions=torch.cat([torch.arange(len(ids)) for ids in part]),
        longest=longest,
        decodes=(),
        prompts=tuple(spans),
        last_rows=torch.tensor(rows),
        sampled=(),
        advanced=(),
    )
    targets = torch.tensor([i for ids in part for i in ids[1:]])
    logits = model.forward(step)
    chosen = logits.gather(1, targets.unsqueeze(1)).squeeze(1) - logits.logsumexp(dim=1)
    sizes = [len(ids) - 1 for ids in part]
    return [scores.tolist() for scores in torch.split(chosen, sizes)]
