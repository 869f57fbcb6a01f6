"""What one rank holds of the weights: the bits of its rows, their digests, what it uploads.

    parameters (this rank's rows) ──► bits ──► digests ─────────────┐ gathered by the first rank:
           parent's bits ──────────────┴─► changes ──► frames/<...> ─┘ leaves, pieces

No rank ever gathers a tensor. What goes to the first rank are digests of blocks of 64 KiB, the ends
of rows that share a block with another rank's, and the places of pieces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from torch import Tensor
from torch.distributed.tensor import DTensor

from tradewind.trainer.bits import bits_of
from tradewind.trainer.learner import Learner
from tradewind.trainer.master import local
from tradewind.trainer.ranks import Ranks
from tradewind.types import Record, TradewindError, UserError
from tradewind.weights.bucket import Bucket
from tradewind.weights.digest import Hashed, Leaf, hashed, joined
from tradewind.weights.tensors import Array, TensorSet, raw
from tradewind.weights.upload import Change, Uploaded, merged, upload

TAG = "BF16"
THREADS = 2
"""Code and hash at the same time."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive rows of a tensor."""

    items: Array
    """bf16 bits, flat."""
    shape: tuple[int, ...]
    """Of the whole tensor."""
    hashed: Hashed


class Report(Record):
    """What a rank tells the first one."""

    hashed: dict[str, Hashed]
    uploaded: Uploaded | None = None
    failure: str | None = None
    """Why it could not upload."""


class Share:
    """One rank's share. `twins` are published names that repeat a parameter: name -> parameter.

    `ranks` must not be those of the step: `upload` runs beside it.
    """

    def __init__(
        self, learner: Learner, ranks: Ranks, bucket: Bucket, twins: Mapping[str, str]
    ) -> None:
        self._learner, self._ranks, self._bucket = learner, ranks, bucket
        self._twins = dict(twins)
        self._parent: dict[str, Rows] = {}
        self._next: dict[str, Rows] = {}

    def begin(self) -> dict[str, Leaf]:
        """The weights in memory are the parent of what is uploaded next; their leaves.

        On all ranks; the first one gets the leaves.
        """
        self._parent = self._next = self._freeze()
        return self._leaves(self._gather(self._parent))

    def upload(self) -> tuple[dict[str, Leaf], Uploaded]:
        """Upload what differs from the parent; leaves of all tensors, and where the pieces lie.

        On all ranks; the first one gets the result. Nothing may write to the weights meanwhile.

        Raises:
            UserError: this rank, or on the first rank any, cannot write to the bucket.
        """
        self._next = self._freeze()
        uploaded, failure = None, None
        try:
            uploaded = upload(self._bucket, self._changes(), threads=THREADS)
        except TradewindError as error:
            failure = error
        reports = self._gather(self._next, uploaded, failure)
        if failure is not None:
            raise failure
        for rank, report in enumerate(reports):
            if report.failure is not None:
                raise UserError(
                    f"rank {rank} could not upload its part", value=report.failure, fix="see there"
                )
        parts = [report.uploaded for report in reports if report.uploaded is not None]
        return self._leaves(reports), merged(parts)

    def accept(self) -> None:
        """What was uploaded last is the parent of what is uploaded next."""
        self._parent = self._next

    def tensors(self) -> TensorSet | None:
        """What was uploaded last, or begun with, if this rank holds all of it."""
        if self._ranks.world > 1:
            return None
        return TensorSet({n: r.items.reshape(r.shape) for n, r in self._next.items()})

    def _freeze(self) -> dict[str, Rows]:
        """The bits of this rank's rows, each parameter under all of its names."""
        held = [(n, p) for n, p in self._learner.masters.trained() if local(p).numel()]
        with ThreadPoolExecutor(THREADS) as pool:
            rows = dict(pool.map(lambda item: (item[0], self._rows(item[1])), held))
        return rows | {twin: rows[name] for twin, name in self._twins.items() if name in rows}

    def _rows(self, parameter: Tensor) -> Rows:
        items = bits_of(local(parameter)).reshape(-1)
        begin, total = 0, 2 * parameter.numel()
        if isinstance(parameter, DTensor):
            # FSDP2 cuts the first dimension as torch.chunk does
            chunk = -(-parameter.shape[0] // self._ranks.world)
            begin = min(self._ranks.rank * chunk, parameter.shape[0]) * total // parameter.shape[0]
        return Rows(items, tuple(parameter.shape), hashed(raw(items), begin, total))

    def _changes(self) -> list[Change]:
        return [
            Change(name, self._parent[name].items, rows.items, TAG, rows.hashed.begin)
            for name, rows in self._next.items()
            if rows.hashed != self._parent[name].hashed
        ]

    def _gather(
        self,
        rows: Mapping[str, Rows],
        uploaded: Uploaded | None = None,
        failure: TradewindError | None = None,
    ) -> list[Report]:
        report = Report(
            hashed={name: r.hashed for name, r in rows.items()},
            uploaded=uploaded,
            failure=None if failure is None else str(failure),
        )
        if self._ranks.world == 1:
            return [report]
        texts = self._ranks.gather(report.model_dump_json().encode())
        return [Report.model_validate_json(text) for text in texts]

    def _leaves(self, reports: Sequence[Report]) -> dict[str, Leaf]:
        if not self._ranks.first:
            return {}
        shapes = {name: tuple(p.shape) for name, p in self._learner.masters.trained()}
        shapes |= {twin: shapes[name] for twin, name in self._twins.items()}
        out = {}
        for name, shape in shapes.items():
            runs = [report.hashed[name] for report in reports if name in report.hashed]
            out[name] = Leaf(TAG, shape, joined(runs, 2 * int(np.prod(shape))))
        return out
