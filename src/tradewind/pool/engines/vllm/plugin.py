"""Tradewind's weight transfer inside vLLM's worker process.

    pool ── /collective_rpc  tradewind_stage(path, digest) ──► a thread maps and verifies the parcel
         ── /collective_rpc  tradewind_staged(digest)      ──► done? refused?
         ── /pause ── /update_weights {digest, way} ──► the verified parcel is applied ── /resume
         ── /collective_rpc  tradewind_read_back(...)      ──► tensors, as they are multiplied

Named in `--worker-extension-cls`; importing it registers the weight transfer backend `tradewind`.
The worker is given a path and a digest, and applies only what it has verified itself. Imports
standard library, numpy, BLAKE3, torch, vLLM and torch-free modules of Tradewind.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from vllm.config import set_current_vllm_config
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

from tradewind.pool.engines.vllm.apply import apply_dense, apply_sparse, as_torch
from tradewind.pool.engines.vllm.parcel import Item, read
from tradewind.pool.engines.vllm.readback import CannotReadBack, read_back
from tradewind.weights.tensors import STORAGE

BACKEND = "tradewind"


@dataclass
class InitInfo(WeightTransferInitInfo):  # type: ignore[misc]  # vLLM is not in every environment
    """Nothing has to be agreed on."""


@dataclass
class UpdateInfo(WeightTransferUpdateInfo):  # type: ignore[misc]
    """Which staged parcel is applied, and how."""

    digest: str
    way: str


class Staging:
    """One parcel on its way: mapped and verified in a thread of its own, beside decoding."""

    def __init__(self, path: str, digest: str) -> None:
        self.digest = digest
        self.items: list[Item] | None = None
        self.error: str | None = None
        self._thread = threading.Thread(target=self._read, args=(Path(path),), daemon=True)
        self._thread.start()

    def _read(self, path: Path) -> None:
        try:
            self.items = read(path, self.digest)
        except Exception as error:  # noqa: BLE001  # boundary: the pool is told, whatever it was
            self.error = f"{type(error).__name__}: {error}"

    def answer(self) -> dict[str, Any]:
        """Whether it is verified, refused, or neither yet."""
        return {"ready": self.items is not None, "error": self.error}


class TradewindTransfer(WeightTransferEngine):  # type: ignore[misc]
    """Applies parcels that this process has verified. Each update is one call: all or nothing, or
    an error after which the pool loads everything anew.
    """

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo
    supports_draft_weight_update = False
    staging: Staging | None = None

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        """Nothing to do."""

    def start_weight_update(self) -> None:
        """Nothing to do: a reload begins and ends in `receive_weights`."""

    def finish_weight_update(self) -> None:
        """The parcel is not needed any more."""
        self.staging = None

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """See the base class, which synchronises a device that a CPU build does not have."""
        self.receive_weights(self.parse_update_info(update_info))
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: UpdateInfo) -> None:
        """Applies the staged parcel; raises RuntimeError if it is not the one that is meant."""
        staging = self.staging
        if staging is None or staging.items is None or staging.digest != update_info.digest:
            raise RuntimeError("this worker has not verified such a parcel")
        device = torch.device(self.device)
        if update_info.way == "sparse":
            apply_sparse(self.model, staging.items, device)
        else:
            apply_dense(self.model, self.model_config, staging.items, device)

    def shutdown(self) -> None:
        """Nothing to release."""


class TradewindWorker:
    """Methods that vLLM adds to its worker; called by `/collective_rpc` with strings."""

    weight_transfer_engine: TradewindTransfer
    vllm_config: Any

    def tradewind_stage(self, path: str, digest: str) -> dict[str, Any]:
        """Begins to verify the parcel at `path`."""
        self.weight_transfer_engine.staging = Staging(path, digest)
        return {}

    def tradewind_staged(self, digest: str) -> dict[str, Any]:
        """How the verification stands; once it is ready, the digests of whole tensors as well."""
        staging = self.weight_transfer_engine.staging
        if staging is None or staging.digest != digest:
            return {"ready": False, "error": "another parcel was staged meanwhile"}
        answer = staging.answer()
        whole = [item for item in staging.items or () if item.indices is None]
        return answer | {"digests": {item.name: item.digest for item in whole}}

    def tradewind_read_back(self, layout: str, path: str) -> dict[str, Any]:
        """Writes tensors into the file at `path`, each rank its share.

        `layout` is JSON: rows of name, dtype tag, shape, offset in bytes. Returns how many elements
        were written of each, or an error.
        """
        file = np.memmap(path, np.uint8, mode="r+")
        filled: dict[str, int] = {}
        try:
            with set_current_vllm_config(self.vllm_config):
                for name, tag, shape, offset in json.loads(layout):
                    size = STORAGE[tag].itemsize * int(np.prod(shape))
                    array = file[offset : offset + size].view(STORAGE[tag]).reshape(shape)
                    model = self.weight_transfer_engine.model
                    filled[name] = read_back(model, name, as_torch(array, tag))
        except CannotReadBack as error:
            return {"error": str(error)}
        return {"filled": filled}


WeightTransferEngineFactory.register_engine(BACKEND, TradewindTransfer)
