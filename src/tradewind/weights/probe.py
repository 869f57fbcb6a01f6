"""Probes: short id sequences whose log-probabilities say whether weights are computed rightly.

    trainer   ids ──► its own forward pass over exactly the weights that it publishes ──► manifest
    pool      ids ──► what its engine computes after the swap ──► compared with the manifest

A state id proves bytes; it says nothing about the arithmetic that reads them. A wrong epsilon,
rotary base or stale derived copy leaves every byte right and every log-probability wrong.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import chain
from typing import Annotated, Self

from pydantic import Field, model_validator

from tradewind.types.record import Record

SEQUENCES = 3
"""Probes of a run."""
LENGTH = 16
"""Most ids of one of them: long enough for rotary angles to matter, short enough to cost nothing
beside a step."""

Ids = tuple[int, ...]
Logprob = Annotated[float, Field(le=0.0, allow_inf_nan=False)]


class Probe(Record):
    """Example: `Probe(ids=(5, 17, 3), logprobs=(-2.5, -0.25))`."""

    ids: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=2, max_length=1024)]
    logprobs: tuple[Logprob, ...]
    """Natural-log probability of `ids[i + 1]` given `ids[: i + 1]`, at temperature 1."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(self.logprobs) != len(self.ids) - 1:
            raise ValueError(f"{len(self.ids)} ids have {len(self.ids) - 1} log-probabilities")
        return self

    @classmethod
    def of(cls, ids: Ids, logprobs: Sequence[float]) -> Probe:
        """Rounded to a millionth, a tenth of what fp32 arithmetic decides: manifests stay small.

        A value above 0, which only rounding makes, becomes 0.
        """
        return cls(ids=ids, logprobs=tuple(min(0.0, round(float(p), 6)) for p in logprobs))


def draw_ids(vocabulary: int, seed: str, texts: Sequence[Sequence[int]] = ()) -> tuple[Ids, ...]:
    """`SEQUENCES` sequences of at most `LENGTH` ids: openings of `texts`, then uniform draws.

    At least one is drawn, so that rows of the embedding that no text uses are read as well. The
    same arguments give the same ids.
    """
    openings = dict.fromkeys(tuple(text[:LENGTH]) for text in texts if len(text) > 1)
    told = list(openings)[: SEQUENCES - 1]
    draws = random.Random(seed)
    drawn = [
        tuple(draws.randrange(vocabulary) for _ in range(LENGTH))
        for _ in range(SEQUENCES - len(told))
    ]
    return tuple(chain(told, drawn))
