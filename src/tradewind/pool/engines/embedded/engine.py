"""The embedded engine: one thread that alternates between commands and decode steps.

    submit, cancel,   ──► inbox ─────►┌───────────────────────────────────┐
    swap, score                       │ commands → admit → forward →      │──► on_chunk
    stage (caller's thread) ─────────►│ sample → deliver, and again       │
                                      └───────────────────────────────────┘
    consumes   GenerateRequest, changed tensors, sequences to be scored
    produces   GenerateChunk; tensors as they are served, scores as they are computed
    waits for  a command, when nobody runs
    unblocked  by any command; the wait has a deadline and is entered again

A swap is built in the caller's thread while decoding goes on; the engine thread only exchanges
references between two steps. If the thread dies, every request gets an error chunk, `load` says
why, and every later call is refused with the same sentence.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Ordered
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from tradewind.pool.engine import Bits, ByteProof, EngineLoad, OnChunk, Served
from tradewind.pool.engines.embedded import scoring
from tradewind.pool.engines.embedded.config import read_shape
from tradewind.pool.engines.embedded.kv import KvMemory
from tradewind.pool.engines.embedded.model import Model
from tradewind.pool.engines.embedded.operations import choose_operations
from tradewind.pool.engines.embedded.prefix import PrefixCache
from tradewind.pool.engines.embedded.sampler import Draw, sample, uniform
from tradewind.pool.engines.embedded.scheduler import KvPolicy, Scheduler
from tradewind.pool.engines.embedded.sequence import Sequence
from tradewind.pool.engines.embedded.served import ServedWeights
from tradewind.pool.rate import Rate
from tradewind.types import FinishReason, GenerateRequest, Stalled, UserError
from tradewind.weights.checkpoint import read_folder
from tradewind.weights.digest import leaves_of
from tradewind.weights.tensors import TensorSet

log = logging.getLogger(__name__)
T = TypeVar("T")

IDLE_S = 1.0
"""How long one wait for a command lasts."""

DEADLINE_S = 60.0
"""How long a caller waits for the moment between two steps."""

STOPPED = "the engine was stopped"


@dataclass(frozen=True)
class Command:
    """Something to be done between two steps, or to be refused if the engine is dead."""

    run: Callable[[], None]
    refuse: Callable[[str], None]


def choose_dtype(name: str, checkpoint: TensorSet) -> torch.dtype:
    """`auto` is bf16 where that is exact, because all weights are bf16, and where the processor
    multiplies it faster than fp32; else fp32.
    """
    if name == "auto":
        cpu = torch.cpu.get_capabilities()
        fast = cpu.get("amx_bf16") or cpu.get("avx512_bf16")
        exact = all(array.dtype == np.uint16 for array in checkpoint.values())
        return torch.bfloat16 if fast and exact else torch.float32
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    if name not in known:
        fix = 'use "auto", "float32" or "bfloat16"'
        raise UserError("the engine has no such dtype", value=name, fix=fix)
    return known[name]


@contextmanager
def one_thread(after: int) -> Iterator[None]:
    """Keeps torch from starting a pool of threads for the calling thread.

    OpenMP has one pool per thread that computes, and once all pools together are larger than the
    processor, its barriers sleep instead of spinning: decoding lost a third of its speed to a pool
    that only the loader had used. MKL has one setting for the process, which is then `after`.
    """
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(after)


class EmbeddedEngine:
    """Implements `tradewind.pool.engine.Engine` on torch for CPUs."""

    def __init__(
        self,
        model: Model,
        *,
        threads: int,
        max_batch: int,
        max_tokens: int,
        kv_policy: KvPolicy = KvPolicy.KEEP,
    ) -> None:
        self._model, self._threads = model, threads
        self._prefixes = PrefixCache(max_tokens // 2)
        memory = KvMemory(model.shape, model.dtype, max_tokens)
        self._scheduler = Scheduler(memory, self._prefixes, max_batch, kv_policy)
        self._scheduler.turn_to(0)
        self._inbox: deque[Command] = deque()
        self._bell = threading.Condition()
        self._swapping = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._closed = False
        self._error: str | None = None
        self._arrivals = 0
        self._rate = Rate()
        self.steps = 0
        """Forward passes so far."""

    @classmethod
    def open(
        cls,
        folder: Path | str,
        *,
        dtype: str = "auto",
        threads: int | None = None,
        max_batch: int = 64,
        max_tokens: int = 32768,
        kv_policy: KvPolicy = KvPolicy.KEEP,
    ) -> EmbeddedEngine:
        """Reads a checkpoint folder and returns a stopped engine at version 0.

        `dtype` is that of the arithmetic; weights are served exactly as stored (bf16, fp16, fp32),
        and bf16 arithmetic refuses weights that are not bf16. `max_tokens` bounds the KV memory of
        running requests, `max_batch` their number; users get an eighth on top, the prefix cache
        half of it. `kv_policy` is what a swap does to running requests. Raises `UserError` for a
        folder or an option that cannot be served.
        """
        count = torch.get_num_threads() if threads is None else threads
        sizes = {"threads": count, "max_batch": max_batch, "max_tokens": max_tokens}
        for name, number in sizes.items():
            if number < 1:
                raise UserError(f"{name} is too small", value=number, fix="give at least 1")
        shape, checkpoint = read_shape(Path(folder)), read_folder(Path(folder))
        arithmetic = choose_dtype(dtype, checkpoint)
        operations = choose_operations(shape, arithmetic, count)
        weights = ServedWeights(shape, arithmetic, operations.head)
        with torch.inference_mode(), one_thread(count):
            weights.load(checkpoint)
        model = Model(shape, weights, arithmetic, operations)
        return cls(
            model, threads=count, max_batch=max_batch, max_tokens=max_tokens, kv_policy=kv_policy
        )

    def start(self) -> None:
        """See `Engine.start`."""
        assert self._thread is None, "the engine was started before"
        self._thread = threading.Thread(target=self._run, name="embedded-engine", daemon=True)
        self._thread.start()

    def submit(self, request: GenerateRequest, on_chunk: OnChunk) -> None:
        """See `Engine.submit`. A dead engine refuses in the caller's thread."""
        with self._bell:
            self._arrivals += 1
            order = self._arrivals
        seed = secrets.randbits(64) if request.seed is None else request.seed
        limit = min(len(request.prompt_ids) + request.max_tokens, self._model.shape.context)
        sequence = Sequence(request, on_chunk, order, seed, limit)

        def add() -> None:
            error = self._objection(request, limit)
            if error is None:
                self._scheduler.add(sequence)
            else:
                sequence.fail(error, self._scheduler.version)

        self._post(Command(add, lambda why: sequence.fail(why, self._scheduler.version)))

    def cancel(self, request_id: str) -> None:
        """See `Engine.cancel`."""

        def end() -> None:
            sequence = self._scheduler.find(request_id)
            if sequence is not None:
                self._scheduler.end(sequence, FinishReason.CANCELLED)

        self._post(Command(end, lambda why: None))

    def swap(self, changed: Bits, version: int, afresh: bool = False) -> float:
        """See `Engine.swap`; nothing that is held is ever built upon. Needs memory for a second
        copy of what changes, until it returns.
        """
        with self._swapping:
            with one_thread(self._threads):
                staged = self._model.weights.stage(changed)
            active: Future[float] = Future()

            def exchange() -> None:
                begin = time.perf_counter()
                self._model.weights.commit(staged)
                self._scheduler.turn_to(version)
                active.set_result(time.perf_counter() - begin)

            def refuse(why: str) -> None:
                active.set_exception(Stalled(f"a swap ({why})", owner="engine", seconds=0))

            self._post(Command(exchange, refuse))
            return _await(active)

    def tensors(self) -> Bits:
        """Copies of the tensors that are being served, under checkpoint names, of one moment
        between two steps. Decoding goes on meanwhile.
        """
        with one_thread(self._threads):
            return self._model.weights.bits()

    def served(self) -> Served:
        """See `Engine.served`."""
        return Served(leaves_of(TensorSet(self.tensors())), ByteProof.READ_BACK)

    def score(self, sequences: Ordered[Ordered[int]]) -> list[list[float]]:
        """See `Engine.score`. Decoding stands still for one pass over `sequences`."""
        for ids in sequences:
            self._model.shape.bounds.check_scored(ids, self._model.shape.context)
        scored: Future[list[list[float]]] = Future()

        def compute() -> None:
            self.steps += 1
            scored.set_result(scoring.score(self._model, sequences))

        def refuse(why: str) -> None:
            scored.set_exception(Stalled(f"scores ({why})", owner="engine", seconds=0))

        self._post(Command(compute, refuse))
        return _await(scored)

    def load(self) -> EngineLoad:
        """See `Engine.load`."""
        scheduler = self._scheduler
        return EngineLoad(
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            max_batch=scheduler.max_batch,
            tokens_per_s=self._rate.per_s(),
            dtype=str(self._model.dtype).removeprefix("torch."),
            version=scheduler.version,
            error=self._error,
        )

    def stop(self) -> None:
        """See `Engine.stop`."""
        with self._bell:
            self._stopping = True
            self._bell.notify()
        if self._thread is None:
            self._close()
        else:
            self._thread.join(DEADLINE_S)
            if self._thread.is_alive():
                raise Stalled("the engine thread to end", owner="engine", seconds=DEADLINE_S)

    # The engine thread -----------------------------------------------------------------------

    def _run(self) -> None:
        torch.set_num_threads(self._threads)
        try:
            with torch.inference_mode():
                while not self._stopping:
                    self._obey()
                    self._scheduler.admit()
                    if not self._decode():
                        self._wait()
        except Exception as error:  # boundary: a dead thread must tell everyone
            log.exception("the engine died")
            self._error = f"the engine died: {type(error).__name__}: {error}"
        self._bury()

    def _obey(self) -> None:
        """Runs all commands that have arrived. One that kills the engine is refused like those
        behind it, so that whoever waits for it hears why.
        """
        while self._inbox:
            self._inbox[0].run()
            self._inbox.popleft()

    def _decode(self) -> bool:
        """One step of the model; False if there is nothing to compute."""
        step = self._scheduler.next_step()
        if step is None:
            return False
        self.steps += 1
        begin = time.perf_counter()
        logits = self._model.forward(step)
        self._scheduler.took(step, time.perf_counter() - begin)
        ids, logprobs = sample(logits, [_draw(s) for s in step.sampled])
        self._scheduler.advance(step, ids, logprobs)
        self._rate.add(len(ids))
        return True

    def _wait(self) -> None:
        with self._bell:
            if not self._inbox and not self._stopping:
                self._bell.wait(IDLE_S)

    def _bury(self) -> None:
        """Ends everybody: with an error if the engine died, as cancelled if it was stopped."""
        for sequence in self._scheduler.everyone():
            if self._error is not None:
                sequence.fail(self._error, self._scheduler.version)
            else:
                sequence.finish(FinishReason.CANCELLED, self._scheduler.version)
        self._close()

    def _close(self) -> None:
        """From now on every command is refused."""
        with self._bell:
            self._closed = True
            late = [*self._inbox]
            self._inbox.clear()
        for command in late:
            command.refuse(self._error or STOPPED)

    # Between the threads ---------------------------------------------------------------------

    def _post(self, command: Command) -> None:
        """Hands a command to the engine thread; a dead or stopped engine refuses it at once.

        Before `start` commands wait in the inbox.
        """
        with self._bell:
            closed = self._closed
            if not closed:
                self._inbox.append(command)
                self._bell.notify()
        if closed:
            command.refuse(self._error or STOPPED)

    def _objection(self, request: GenerateRequest, limit: int) -> str | None:
        """Why a request can never be served, or not now; None if it can."""
        longest = self._scheduler.memory.longest
        if (error := self._model.shape.bounds.objection(request)) is not None:
            return error
        if limit > longest:
            return f"the request may need {limit} tokens of KV memory, the pool has {longest}"
        if self._scheduler.find(request.request_id) is not None:
            return f"request {request.request_id} is running already"
        return None


def _await(answer: Future[T]) -> T:
    try:
        return answer.result(DEADLINE_S)
    except FutureTimeout:
        raise Stalled("the end of a step", owner="engine", seconds=DEADLINE_S) from None


def _draw(sequence: Sequence) -> Draw:
    """The position is that in the whole sequence, so a request that another pool continues from
    prompt + tokens so far samples on as if nothing had happened.
    """
    request = sequence.request
    u = uniform(sequence.seed, len(sequence.ids))
    return Draw(request.temperature, request.top_p, u)
