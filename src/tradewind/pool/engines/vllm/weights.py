"""The weights of a running vLLM: staged, exchanged, read back, put back. Control calls only.

stage      parcel in a file ──► every worker maps and verifies it, beside decoding
exchange   pause ─► start, update, finish with the version's name ─► resume
read_back  tensors out of the workers through a shared file, a part at a time
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tradewind.pool.engines.vllm.client import VllmClient, VllmFailed
from tradewind.pool.engines.vllm.parcel import ALIGN, Item, write
from tradewind.pool.engines.vllm.patch import Way
from tradewind.types import RefusedWeights
from tradewind.weights.digest import Leaf, tensor_digest
from tradewind.weights.tensors import STORAGE, TensorSet

log = logging.getLogger(__name__)

POLL_S = 0.02
PART_BYTES = 512 * 2**20
"""Of tensors that are read back at once: decoding stands still meanwhile."""


class Parcel:
    """One parcel on its way."""

    def __init__(self, path: Path, items: Iterable[Item], way: Way) -> None:
        """Writes it. Raises RefusedWeights if there is no room."""
        self.path, self.way = path, way
        try:
            self.digest = write(path, items)
        except OSError as error:
            self.remove()
            raise RefusedWeights(
                f"the patch for vLLM cannot be written ({error.strerror})",
                value=str(path.parent),
                fix="make room there, or set vllm.scratch to another folder",
            ) from error

    def remove(self) -> None:
        """Workers that have mapped it keep it until they have applied it."""
        self.path.unlink(missing_ok=True)


class VllmWeights:
    """Control calls; coroutines of the engine's event loop. Every failure is a VllmFailed."""

    def __init__(self, client: VllmClient, deadline_s: float, *, recompute: bool) -> None:
        self._client, self._deadline_s = client, deadline_s
        self._clear = "true" if recompute else "false"

    async def stage(self, parcel: Parcel) -> dict[str, str]:
        """Until every worker has verified the parcel. Returns the digests of its whole tensors, as
        the workers computed them. Raises RefusedWeights if one of them refuses it.
        """
        await self._client.ask_worker(
            "tradewind_stage", path=str(parcel.path), digest=parcel.digest
        )
        deadline = time.monotonic() + self._deadline_s
        while True:
            answers = await self._client.ask_worker("tradewind_staged", digest=parcel.digest)
            for answer in answers:
                if answer["error"] is not None:
                    raise RefusedWeights(
                        f"vLLM's worker refuses the patch ({answer['error']})",
                        fix="look for what writes into the pool's scratch folder",
                    )
            if all(answer["ready"] for answer in answers):
                first: dict[str, str] = answers[0]["digests"]
                if any(answer["digests"] != first for answer in answers):
                    raise VllmFailed("vLLM's workers have read different tensors")
                return first
            if time.monotonic() > deadline:
                raise VllmFailed(f"the patch was not verified in {self._deadline_s:.0f} s")
            await asyncio.sleep(POLL_S)

    async def exchange(self, parcel: Parcel | None, version: int, *, resume: bool = True) -> float:
        """Applies a staged parcel, or none; returns the seconds for which decoding stood still.

        After a failure decoding still stands, as it does without `resume`: `exchange` again with
        weights that are known.
        """
        await self._client.post("/pause", mode="keep", clear_cache=self._clear)
        paused = time.perf_counter()
        if parcel is None:
            await self.name(version)
        else:
            try:
                await self._client.post("/start_weight_update")
            except VllmFailed as error:  # one that was begun and broken off is gone on with
                log.info("%s", error)
            update = {"digest": parcel.digest, "way": str(parcel.way)}
            await self._client.post("/update_weights", {"update_info": update})
            await self._client.post("/finish_weight_update", {"weight_version": str(version)})
        if resume:
            await self._client.post("/resume")
        return time.perf_counter() - paused

    async def name(self, version: int) -> None:
        """What vLLM says of the tokens that it samples from now on."""
        await self._client.post("/update_weight_version", {"new_version": str(version)})

    async def read_back(self, tensors: TensorSet, path: Path) -> dict[str, Leaf]:
        """Leaves of what vLLM multiplies; `tensors` gives names, dtypes and shapes.

        Tensors that it never reads are left out. Raises VllmFailed if its layout cannot be read.
        """
        leaves: dict[str, Leaf] = {}
        try:
            for names in _parts(tensors):
                leaves |= await self._read_part(tensors, names, path)
        finally:
            path.unlink(missing_ok=True)
        return leaves

    async def _read_part(self, tensors: TensorSet, names: list[str], path: Path) -> dict[str, Leaf]:
        rows: list[tuple[str, str, tuple[int, ...], int]] = []
        size = 0
        for name in names:
            rows.append((name, tensors.tag(name), tensors[name].shape, size))
            size += -(-tensors[name].nbytes // ALIGN) * ALIGN
        with path.open("wb") as file:
            path.chmod(0o600)
            file.truncate(size)
        answers = await self._client.ask_worker(
            "tradewind_read_back", layout=json.dumps(rows), path=str(path)
        )
        for answer in answers:
            if "error" in answer:
                raise VllmFailed(answer["error"])
        read = [row for row in rows if sum(answer["filled"][row[0]] for answer in answers)]
        return await asyncio.to_thread(_leaves, path, read)


def _leaves(path: Path, rows: list[tuple[str, str, tuple[int, ...], int]]) -> dict[str, Leaf]:
    file = np.memmap(path, np.uint8, mode="r")
    leaves = {}
    for name, tag, shape, offset in rows:
        size = STORAGE[tag].itemsize * int(np.prod(shape))
        leaves[name] = Leaf(tag, shape, tensor_digest(file[offset : offset + size]))
    return leaves


def _parts(tensors: Mapping[str, Any]) -> Iterator[list[str]]:
    part: list[str] = []
    size = 0
    for name, array in tensors.items():
        if array.size < 2:
            continue  # see `readback.read_back`
        if part and size + array.nbytes > PART_BYTES:
            yield part
            part, size = [], 0
        part.append(name)
        size += array.nbytes
    if part:
        yield part
