"""The weights that a running vLLM holds: what they are, how they change, how they are proven.

probe   read back? ─► a patch without a change? ─► sparse         once, before anybody is served
                 └──► everything once more ─────► dense
swap    plan ─► parcel ─► staged, verified by the workers ─► exchanged while decoding stands
             └─ refused: nothing happened      └─ failed: the old version is put back, whole
served  tensors read back, or the digests of what the workers' loaders were given
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tradewind.pool.engine import Bits, ByteProof, PutBack, Served
from tradewind.pool.engines.vllm.client import VllmFailed
from tradewind.pool.engines.vllm.parcel import Item
from tradewind.pool.engines.vllm.patch import Way, dense, sparse, unchanged
from tradewind.pool.engines.vllm.traffic import Traffic
from tradewind.pool.engines.vllm.weights import Parcel, VllmWeights
from tradewind.types import RefusedWeights
from tradewind.weights.digest import Leaf, leaves_of
from tradewind.weights.tensors import TensorSet

log = logging.getLogger(__name__)
T = TypeVar("T")

SAME = 1e-2
"""Nats by which scores may differ before and after weights were loaded that change nothing."""

Score = Callable[[], list[list[float]]]


class Call(Protocol):
    """How the event loop is asked for work from another thread."""

    def __call__(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns; raises VllmFailed at a deadline."""


class Holdings:
    """Used by one thread at a time. `tensors` are those that vLLM has read by itself; arrays are
    referenced, not copied.
    """

    def __init__(
        self, tensors: TensorSet, weights: VllmWeights, traffic: Traffic, folder: Path, call: Call
    ) -> None:
        self._tensors, self._weights, self._traffic = tensors, weights, traffic
        self._folder, self._call = folder, call
        self._loaded: dict[str, Leaf] = {}
        self._numbers = itertools.count()
        self.way = Way.DENSE
        """How new versions are applied."""
        self.proof = ByteProof.AS_LOADED
        """Which proof of bytes this vLLM allows."""

    def probe(self, score: Score, apply: str) -> None:
        """Finds out what this vLLM can do with weights, by giving it those that it has.

        A patch of positions is tried only if tensors can be read back, because only then is it seen
        whether it did what it should. Raises VllmFailed if nothing works.
        """
        self._call(self._weights.name(0))
        before = score()
        if self._reads_back():
            self.proof = ByteProof.READ_BACK
            if apply == "auto" and self._takes(Way.SPARSE, score, before):
                self.way = Way.SPARSE
        if self.way is Way.DENSE and not self._takes(Way.DENSE, score, before):
            raise VllmFailed("it does not compute the same after its own weights are loaded again")

    def swap(self, changed: Bits, version: int, afresh: bool) -> float:
        """Returns the seconds for which decoding stood still. Raises RefusedWeights if nothing was
        done, PutBack with the old version in place and decoding still at rest, VllmFailed if it
        could not be put back.
        """
        self._check(changed)
        begun = time.monotonic()
        after = self._tensors.with_changed(changed)
        way, items = self._plan(after, None if afresh else changed)
        parcel = self._parcel(way, items) if items is not None else None
        try:
            digests = self._call(self._weights.stage(parcel)) if parcel else {}
            staged = time.monotonic()
            pause_s = self._call(self._exchange(parcel, version))
        except VllmFailed as error:
            self._put_back(error)
            raise PutBack(
                f"vLLM could not apply version {version} ({error})",
                fix="look into the pool's log; the version is tried again",
            ) from error
        finally:
            if parcel is not None:
                parcel.remove()
        self._keep(after, way, digests)
        log.info(
            "version %d is in vLLM, %s: staged in %.2f s, paused %.1f ms, %.2f s in all",
            version,
            way if parcel else "without a change",
            staged - begun,
            1000 * pause_s,
            time.monotonic() - begun,
        )
        return pause_s

    def served(self) -> Served:
        """Digests of what vLLM multiplies, or of what it was given; raises VllmFailed."""
        if self.proof is ByteProof.AS_LOADED:
            return Served(dict(self._loaded), self.proof)
        return Served(self._read_back(), self.proof)

    def _check(self, changed: Bits) -> None:
        for name, array in changed.items():
            known = self._tensors.get(name)
            if known is None:
                fix = "publish deltas of the checkpoint that this pool serves"
                raise RefusedWeights("the model has no such tensor", value=name, fix=fix)
            if (array.shape, array.dtype) != (known.shape, known.dtype):
                fix = f"publish it with shape {known.shape} and dtype {known.dtype}"
                value = (array.shape, str(array.dtype))
                raise RefusedWeights(f"{name} has another form", value=value, fix=fix)

    def _plan(self, after: TensorSet, changed: Bits | None) -> tuple[Way, Iterable[Item] | None]:
        """How `changed` is applied, everything if it is None; no items if it changes nothing."""
        if changed is not None:
            items = sparse(self._tensors, changed)
            if items is not None and (not items or self.way is Way.SPARSE):
                return Way.SPARSE, items or None
        return Way.DENSE, dense(after)

    def _parcel(self, way: Way, items: Iterable[Item]) -> Parcel:
        return Parcel(self._folder / f"parcel-{next(self._numbers)}", items, way)

    async def _exchange(self, parcel: Parcel | None, version: int) -> float:
        """Nobody is admitted meanwhile, and after a failure not before the next one.

        A salt never comes back: a version that does may follow one that went wrong.
        """
        self._traffic.hold(version)
        pause_s = await self._weights.exchange(parcel, version)
        self._traffic.release(version, f"{version}.{next(self._numbers)}")
        return pause_s

    def _put_back(self, why: Exception) -> None:
        """The old version, whole, after a failure in the middle; decoding stays at rest."""
        log.warning("the old version is put back: %s", why)
        parcel = self._parcel(Way.DENSE, dense(self._tensors))
        try:
            digests = self._call(self._weights.stage(parcel))
            self._call(self._weights.exchange(parcel, self._traffic.version, resume=False))
        except (VllmFailed, RefusedWeights) as error:
            raise VllmFailed(
                f"vLLM failed in a swap ({why}), and as the old version was put back ({error})"
            ) from error
        finally:
            parcel.remove()
        self._keep(self._tensors, Way.DENSE, digests)

    def _keep(self, tensors: TensorSet, way: Way, digests: dict[str, str]) -> None:
        self._tensors = tensors
        if way is Way.DENSE:
            self._loaded = {
                name: Leaf(tensors.tag(name), tensors[name].shape, digest)
                for name, digest in digests.items()
            }

    def _takes(self, way: Way, score: Score, before: list[list[float]]) -> bool:
        """Whether a parcel that changes nothing is applied and changes nothing."""
        items = unchanged(self._tensors) if way is Way.SPARSE else dense(self._tensors)
        parcel = self._parcel(way, items)
        try:
            digests = self._call(self._weights.stage(parcel))
            self._call(self._exchange(parcel, 0))
            self._keep(self._tensors, way, digests)
            if self.proof is ByteProof.READ_BACK and not self._are_ours(self._read_back()):
                return False
            return _apart(before, score()) <= SAME
        except VllmFailed as error:
            log.info("vLLM does not take %s updates: %s", way, error)
            return False
        finally:
            parcel.remove()

    def _reads_back(self) -> bool:
        """Whether tensors can be taken out again, and are those of the checkpoint."""
        try:
            return self._are_ours(self._read_back())
        except VllmFailed as error:
            log.info("vLLM's tensors cannot be read back: %s", error)
            return False

    def _read_back(self) -> dict[str, Leaf]:
        path = self._folder / f"served-{next(self._numbers)}"
        return self._call(self._weights.read_back(self._tensors, path))

    def _are_ours(self, leaves: dict[str, Leaf]) -> bool:
        return bool(leaves) and leaves == leaves_of(self._tensors, leaves)


def _apart(one: list[list[float]], other: list[list[float]]) -> float:
    pairs = zip(itertools.chain(*one), itertools.chain(*other), strict=True)
    return max((abs(a - b) for a, b in pairs), default=0.0)
