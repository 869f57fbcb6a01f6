"""Documents beside rollouts, so that RL does not unlearn what mid-training taught.

RL practises what its tasks ask, and drifts there: kinds of task that it does not practise, or whose
groups all fail and so give no gradient, are lost and stay lost. A few rows of the corpus in every
step hold them (PPO-ptx: Ouyang et al. 2022, arXiv:2203.02155, equation 2).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from tradewind.trainer.config import TrainerConfig
from tradewind.trainer.corpus import Ids, Row, read_corpus, row_samples, rows
from tradewind.types import Sample, UserError


class Rehearsal:
    """The rows of each step; they depend on seed and step alone, so a step can be repeated."""

    def __init__(self, documents: list[Ids], config: TrainerConfig) -> None:
        assert documents or not config.rehearsal_rows, "rows of what?"
        self._documents, self._config = documents, config
        self._stream: Iterator[Row] = iter(())
        self._next = -1

    @classmethod
    def open(cls, file: Path | None, model: Path, config: TrainerConfig) -> Rehearsal:
        """Read the corpus, if the config wants any of it.

        Raises:
            UserError: it is wanted and not there, or cannot be read (see `read_corpus`).
        """
        if not config.rehearsal_rows:
            return cls([], config)
        if file is None:
            raise UserError(
                "rehearsal needs a corpus",
                value=f"rehearsal_rows = {config.rehearsal_rows}",
                fix="name one with --corpus, or set rehearsal_rows = 0",
            )
        return cls(read_corpus(file, model).train, config)

    def samples(self, number: int) -> list[Sample]:
        """Step `number`'s rows, each document a sample of its own; none if none are asked for."""
        config, n = self._config, self._config.rehearsal_rows
        if not n:
            return []
        if number != self._next:  # the first one here, or one that is done again
            stream = rows(self._documents, config.rehearsal_length, config.seed)
            self._stream = islice(stream, number * n, None)
        self._next = number + 1
        mine = islice(self._stream, n)
        return [s for i, row in enumerate(mine) for s in row_samples(row, True, f"rehearsal{i}")]
