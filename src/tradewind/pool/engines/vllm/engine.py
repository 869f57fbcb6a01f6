"""vLLM as an engine: a server of its own, driven through its socket.

    submit, cancel ──► event loop ──► traffic ──► /inference/v1/generate ──► on_chunk
    swap           ──► parcel in a file ──► workers verify it ──► pause, update, resume
    score, served  ──► prompt logprobs; tensors read back, or digests of what was loaded
    watch          ──► the process and /health, every `health_s`

    consumes   GenerateRequest, changed tensors, sequences to be scored
    produces   GenerateChunk; digests and scores
    waits for  vLLM to start (deadline `start_s`), each control call (`call_s`)
    unblocked  by vLLM, or by its end

If vLLM dies, every request gets an error chunk, `load` says why, and every later call is refused.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import threading
import time
from collections.abc import Coroutine, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import Any, TypeVar

from tradewind.pool.engine import Bits, EngineLoad, OnChunk, Served, user_share
from tradewind.pool.engines.vllm.client import VllmClient, VllmFailed
from tradewind.pool.engines.vllm.config import VllmConfig
from tradewind.pool.engines.vllm.holdings import Holdings
from tradewind.pool.engines.vllm.model import ServedModel
from tradewind.pool.engines.vllm.patch import Way
from tradewind.pool.engines.vllm.pending import Pending
from tradewind.pool.engines.vllm.server import VllmServer
from tradewind.pool.engines.vllm.traffic import Traffic
from tradewind.pool.engines.vllm.weights import VllmWeights
from tradewind.types import GenerateRequest, Stalled, UserError
from tradewind.weights.probe import draw_ids
from tradewind.weights.tensors import TensorSet

log = logging.getLogger(__name__)
T = TypeVar("T")

POLL_S = 0.1
"""How often a starting vLLM is asked whether it is there, in seconds."""
UNWELL = 3
"""Health checks in a row that may fail."""
STOP_S = 15.0
"""For the event loop to end, in seconds."""


class VllmEngine:
    """Implements `tradewind.pool.engine.Engine` on stock vLLM.

    `tensors` are those of the checkpoint from which vLLM starts, version 0. Arrays are referenced.
    """

    def __init__(
        self,
        server: VllmServer,
        model: ServedModel,
        tensors: TensorSet,
        config: VllmConfig,
        *,
        max_batch: int,
        recompute: bool = False,
    ) -> None:
        self._server, self._model, self._config = server, model, config
        self._max_batch = max_batch
        self._client = VllmClient(server.socket, server.key, config.call_s)
        self._traffic = Traffic(self._client, max_batch)
        weights = VllmWeights(self._client, config.call_s, recompute=recompute)
        self._holdings = Holdings(tensors, weights, self._traffic, server.folder, self._call)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="vllm", daemon=True)
        self._swapping = threading.Lock()
        self._numbers = itertools.count()
        self._watch: Future[None] | None = None
        self._error: str | None = None
        self._stopped = False

    @classmethod
    def open(
        cls,
        folder: Path,
        tensors: TensorSet,
        config: VllmConfig,
        *,
        dtype: str = "auto",
        max_batch: int = 32,
        recompute: bool = False,
    ) -> VllmEngine:
        """An engine that is not started, for the checkpoint `folder` that holds `tensors`.

        `recompute` reads running requests again with the new weights after a swap. Raises UserError
        for what vLLM cannot serve.
        """
        model = ServedModel.read(folder, tensors, dtype, config.max_model_len)
        arguments = {
            "--model": str(folder),
            "--dtype": model.dtype,
            "--max-model-len": str(model.bounds.context),
            "--max-num-seqs": str(max_batch + user_share(max_batch)),
        }
        if model.dtype != "float32":  # 16-bit logits near 20 are 0.125 apart
            arguments["--hf-overrides"] = json.dumps({"head_dtype": "float32"})
        server = VllmServer(config, arguments, tensors.nbytes)
        return cls(server, model, tensors, config, max_batch=max_batch, recompute=recompute)

    def start(self) -> None:
        """See `Engine.start`. Raises UserError if vLLM does not start or takes no weights."""
        self._server.start()
        self._thread.start()
        begun = time.monotonic()
        try:
            self._call(self._await_start(), self._config.start_s + self._config.call_s)
            ids = draw_ids(self._model.bounds.vocab, "vLLM")
            self._holdings.probe(lambda: self.score(ids), self._config.apply)
        except (VllmFailed, Stalled) as error:
            self._fail_start(str(error))
        self._watch = asyncio.run_coroutine_threadsafe(self._watch_server(), self._loop)
        log.info(
            "vLLM serves after %.1f s: weights are applied %s, and proven by digests %s",
            time.monotonic() - begun,
            self.way,
            self._holdings.proof,
        )

    @property
    def way(self) -> Way:
        """How new versions are applied; chosen at the start."""
        return self._holdings.way

    def submit(self, request: GenerateRequest, on_chunk: OnChunk) -> None:
        """See `Engine.submit`."""
        limit = self._model.limit(request)
        pending = Pending(request, on_chunk, next(self._numbers), limit)
        error = self._error or self._model.objection(request)
        if error is not None or not self._post(self._traffic.add, pending):
            pending.fail(error or "the engine was stopped", self._traffic.version)

    def cancel(self, request_id: str) -> None:
        """See `Engine.cancel`."""
        self._post(self._traffic.cancel, request_id)

    def swap(self, changed: Bits, version: int, afresh: bool = False) -> float:
        """See `Engine.swap`. After a failure either the old version is back, and PutBack is raised,
        or the engine is dead.
        """
        with self._swapping:
            self._refuse_if_dead("a swap")
            try:
                return self._holdings.swap(changed, version, afresh)
            except VllmFailed as error:
                self._die(str(error))
                raise Stalled(f"a swap ({error})", owner="vLLM", seconds=0) from error

    def served(self) -> Served:
        """See `Engine.served`."""
        self._refuse_if_dead("digests")
        try:
            return self._holdings.served()
        except VllmFailed as error:
            raise Stalled(f"digests ({error})", owner="vLLM", seconds=0) from error

    def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `Engine.score`. vLLM reads the sequences beside what it decodes."""
        self._refuse_if_dead("scores")
        asked = [tuple(ids) for ids in sequences]
        for ids in asked:
            self._model.check_scored(ids)
        try:
            return self._call(self._score_all(asked))
        except VllmFailed as error:
            raise Stalled(f"scores ({error})", owner="vLLM", seconds=0) from error

    def load(self) -> EngineLoad:
        """See `Engine.load`."""
        traffic = self._traffic
        return EngineLoad(
            running=traffic.running,
            waiting=traffic.waiting,
            max_batch=self._max_batch,
            tokens_per_s=traffic.rate.per_s(),
            dtype=self._model.dtype,
            version=traffic.version,
            error=self._error,
        )

    def stop(self) -> None:
        """See `Engine.stop`. Ends vLLM as well."""
        if self._stopped:
            return
        self._stopped = True
        if self._thread.is_alive():
            if self._watch is not None:
                self._watch.cancel()
            closing = asyncio.run_coroutine_threadsafe(self._close(), self._loop)
            try:
                closing.result(STOP_S)
            except FutureTimeout:
                log.warning("requests did not end within %.0f s", STOP_S)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(STOP_S)
        if not self._thread.is_alive():
            self._loop.close()
        self._server.stop()

    # The event loop --------------------------------------------------------------------------

    async def _await_start(self) -> None:
        deadline = time.monotonic() + self._config.start_s
        while True:
            if (ended := self._server.ended()) is not None:
                raise VllmFailed(ended)
            try:
                if await self._client.well():
                    return
            except VllmFailed:
                pass  # it does not listen yet
            if time.monotonic() > deadline:
                tail = self._server.tail()
                raise VllmFailed(f"no answer in {self._config.start_s:.0f} s; its log:\n{tail}")
            await asyncio.sleep(POLL_S)

    async def _watch_server(self) -> None:
        """Notices the end of vLLM within `health_s`, and a silence after `UNWELL` checks."""
        unwell = 0
        while self._error is None:
            await asyncio.sleep(self._config.health_s)
            try:
                unwell = 0 if await self._client.well() else UNWELL
            except VllmFailed:
                unwell += 1
            if (ended := self._server.ended()) is not None:
                self._die(ended)
            elif unwell >= UNWELL:
                self._die(f"vLLM is not well; the end of its log:\n{self._server.tail()}")

    async def _score_all(self, sequences: list[tuple[int, ...]]) -> list[list[float]]:
        return await asyncio.gather(*map(self._score, sequences))

    async def _score(self, ids: tuple[int, ...]) -> list[float]:
        sampling = {"max_tokens": 1, "temperature": 0, "prompt_logprobs": 0, "detokenize": False}
        answer = await self._client.post(
            "/inference/v1/generate",
            {
                "request_id": f"score-{next(self._numbers)}",
                "token_ids": list(ids),
                "sampling_params": sampling,
                "cache_salt": f"score-{next(self._numbers)}",
            },
        )
        rows: list[dict[str, Any]] = answer["prompt_logprobs"][1:]
        return [float(row[str(i)]["logprob"]) for i, row in zip(ids[1:], rows, strict=True)]

    async def _close(self) -> None:
        await self._traffic.close(self._error)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()  # who waits for them in another thread is told
        await self._client.close()

    # Between the threads ---------------------------------------------------------------------

    def _call(self, work: Coroutine[Any, Any, T], seconds: float | None = None) -> T:
        """Runs a coroutine in the event loop and waits for it, up to a deadline."""
        limit = 3 * self._config.call_s if seconds is None else seconds
        if self._stopped:
            work.close()
            raise Stalled("vLLM (the engine was stopped)", owner="engine", seconds=0)
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(limit)
        except FutureTimeout:
            future.cancel()
            raise VllmFailed(f"no answer in {limit:.0f} s") from None
        except CancelledError:
            raise Stalled("vLLM (the engine was stopped)", owner="engine", seconds=0) from None

    def _post(self, run: Any, *arguments: Any) -> bool:
        """False if the event loop has ended."""
        if self._stopped:
            return False
        self._loop.call_soon_threadsafe(run, *arguments)
        return True

    def _refuse_if_dead(self, wanted: str) -> None:
        if self._error is not None or self._stopped:
            why = self._error or "the engine was stopped"
            raise Stalled(f"{wanted} ({why})", owner="vLLM", seconds=0)

    def _die(self, error: str) -> None:
        if self._error is None:
            self._error = error
            log.error("%s", error)
            asyncio.run_coroutine_threadsafe(self._traffic.close(error), self._loop)

    def _fail_start(self, why: str) -> None:
        self._error = why
        python = self._config.python or "the pool's own Python"
        raise UserError(
            f"vLLM does not start ({why})",
            value=str(python),
            fix="run that Python with `-m vllm.entrypoints.cli.main serve` on the model to see why",
        )
