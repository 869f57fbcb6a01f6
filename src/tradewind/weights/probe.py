"""Probes: short id sequences whose log-probabilities say whether weights are computed rightly.

    trainer   ids ──► its own forward pass over exactly the weights that it publishes ──► manifest
    pool      ids ──► what its engine computes after the swap ──► compared with the manifest

A state id proves bytes; it says nothing about the arithmetic that reads them. A wrong epsilon,
rotary base or stale derived copy leaves every byte right and every log-probability wrong.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import Field, model_validator

from tradewind.types.record import Record

TEXT = (
    "The key of the red door is 4817. The key of the blue door is 2093. The key of the green door "
    "is 5566. The key of the red door is 4817. The key of the blue door is 2093."
)
"""What a run is probed with if its model has a tokenizer. A model predicts most of it, and by
looking back so many ids that wrong rotary angles show; 16-bit arithmetic blurs it three times less
than it does random ids. Nothing of a customer's gets into a manifest."""
TEXT_LENGTH = 48
"""Most ids of it."""
DRAWS, LENGTH = 3, 16
"""So many sequences of so many random ids are drawn where there is no text."""

Ids = tuple[int, ...]
Logprob = Annotated[float, Field(le=0.0, allow_inf_nan=False)]


class Probe(Record):
    """Example: `Probe(ids=(5, 17, 3), logprobs=(-2.5, -0.25))`."""

    ids: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=2, max_length=1024)]
    logprobs: tuple[Logprob, ...]
    """Natural-log probability of `ids[i + 1]` given `ids[: i + 1]`, at temperature 1."""
    dtype: str = "float32"
    """Of the arithmetic that computed them."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(self.logprobs) != len(self.ids) - 1:
            raise ValueError(f"{len(self.ids)} ids have {len(self.ids) - 1} log-probabilities")
        return self

    @classmethod
    def of(cls, ids: Ids, logprobs: Sequence[float], dtype: str = "float32") -> Probe:
        """Rounded to a millionth, a tenth of what fp32 arithmetic decides: manifests stay small.

        A value above 0, which only rounding makes, becomes 0.
        """
        rounded = tuple(min(0.0, round(float(p), 6)) for p in logprobs)
        return cls(ids=ids, logprobs=rounded, dtype=dtype)


def draw_ids(vocabulary: int, seed: str, text: Sequence[int] = ()) -> tuple[Ids, ...]:
    """The opening of `text`, if its ids are in the vocabulary, and uniform draws: one beside a
    text, so that rows of the embedding that no text uses are read as well; else `DRAWS`.

    The same arguments give the same ids.
    """
    opening = tuple(text[:TEXT_LENGTH])
    told = [opening] if len(opening) > 1 and max(opening) < vocabulary else []
    draws = random.Random(seed)
    drawn = [
        tuple(draws.randrange(vocabulary) for _ in range(LENGTH))
        for _ in range(DRAWS - 2 * len(told))
    ]
    return (*told, *drawn)
