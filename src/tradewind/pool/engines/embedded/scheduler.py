"""Who runs in the next step: admission, prompt parts, what happens to sampled ids."""

from __future__ import annotations

from bisect import insort
from enum import StrEnum

from tradewind.pool.engine import user_share
from tradewind.pool.engines.embedded.kv import KvMemory
from tradewind.pool.engines.embedded.prefix import BLOCK, PrefixCache
from tradewind.pool.engines.embedded.sequence import Sequence
from tradewind.pool.engines.embedded.step import Step, plan
from tradewind.types import FinishReason, Priority

STEP_ROWS = 192
"""Batch rows of a step up to which prompt parts are added while users read along: wide enough for
full GEMM speed, and a short step."""

STEP_S = 0.35
"""Seconds that a step with prompts may take when no user is there to notice: one who arrives waits
for its end. Prompts that are read together also decode together."""

MIN_PART = 64
"""Prompt ids that a step reads at least, however many sequences decode."""


class KvPolicy(StrEnum):
    """What a swap does to the keys and values of running sequences."""

    KEEP = "keep"
    """They stay: no pause, and the rest of a sequence attends to what older weights computed."""
    RECOMPUTE = "recompute"
    """All ids so far are read again with the new weights: as if the version had always been there,
    at the price of one prompt per running sequence."""


class Scheduler:
    """Waiting, reading (their prompt) and decoding sequences. Used by the engine thread only."""

    def __init__(
        self,
        memory: KvMemory,
        prefixes: PrefixCache,
        max_batch: int,
        kv_policy: KvPolicy = KvPolicy.KEEP,
    ) -> None:
        self.memory, self.prefixes = memory, prefixes
        self.max_batch = max_batch
        self.kv_policy = kv_policy
        self.waiting: list[Sequence] = []
        """Sorted by rank."""
        self.reading: list[Sequence] = []
        """Sorted by rank."""
        self.running: dict[str, Sequence] = {}
        """All that hold a row, by request id."""
        self.version = 0
        self._rows_per_s = 0.0

    def add(self, sequence: Sequence) -> None:
        """Queues a sequence by rank: users first, then by arrival."""
        insort(self.waiting, sequence, key=lambda s: s.rank)

    def find(self, request_id: str) -> Sequence | None:
        """The unfinished sequence of a request."""
        found = self.running.get(request_id)
        return found or next((s for s in self.waiting if s.request.request_id == request_id), None)

    def admit(self) -> None:
        """Gives rows to those waiting, in order, as long as they fit.

        Who does not fit stops those behind, so that nobody starves. Who could share a prefix that
        is being read right now waits for it, and lets others pass.
        """
        for sequence in self.waiting[: 2 * self.max_batch]:
            if self._shares_what_is_being_read(sequence):
                continue
            if not self._place(sequence):
                break
            self.waiting.remove(sequence)
            self.running[sequence.request.request_id] = sequence
            self.prefixes.load(sequence)
            insort(self.reading, sequence, key=lambda s: s.rank)

    def _place(self, sequence: Sequence) -> bool:
        """A user may also use what is kept free of others, in rows and in memory."""
        user = sequence.request.priority == Priority.USER
        rows = self.max_batch + (user_share(self.max_batch) if user else 0)
        return len(self.running) < rows and self.memory.place(sequence, with_spare=user)

    def _shares_what_is_being_read(self, sequence: Sequence) -> bool:
        if not self.reading:
            return False
        known = self.prefixes.covered(sequence.ids)
        usable = (len(sequence.ids) - 1) // BLOCK * BLOCK
        return any(
            min(common_blocks(reader.ids, sequence.ids), usable) > known
            for reader in self.reading
            if reader.kv_version == self.version
        )

    def next_step(self) -> Step | None:
        """All decoding rows and as many prompt ids as the step has room for; None if idle."""
        lanes = [lane for lane in self.memory.lanes.values() if lane.members]
        decoding = sum(lane.decoding for lane in lanes)
        room = max(MIN_PART, self._step_rows() - decoding)
        parts: list[tuple[Sequence, int]] = []
        for sequence in self.reading:
            if room == 0:
                break
            parts.append((sequence, min(room, sequence.pending)))
            room -= parts[-1][1]
        if not decoding and not parts:
            return None
        return plan(lanes, parts, self.memory.dtype)

    def took(self, step: Step, seconds: float) -> None:
        """Learns from a full step how many rows the next one may have."""
        if len(step.ids) >= STEP_ROWS:
            self._rows_per_s = len(step.ids) / seconds

    def _step_rows(self) -> int:
        if any(s.request.priority is Priority.USER for s in self.running.values()):
            return STEP_ROWS
        return max(STEP_ROWS, int(self._rows_per_s * STEP_S))

    def advance(self, step: Step, ids: list[int], logprobs: list[float]) -> None:
        """Records what a step computed and delivers what it sampled."""
        for sequence, count in step.advanced:
            sequence.done += count
        for sequence, token, logprob in zip(step.sampled, ids, logprobs, strict=True):
            if not sequence.decoding:
                assert sequence.lane is not None
                self.reading.remove(sequence)
                self.prefixes.store(sequence)
                sequence.lane.start_decoding(sequence)
            reason = sequence.take(token, logprob, self.version)
            if reason is not None:
                self.end(sequence, reason)

    def end(self, sequence: Sequence, reason: FinishReason) -> None:
        """Frees what the sequence holds and delivers its last chunk."""
        self._release(sequence)
        sequence.finish(reason, self.version)

    def fail(self, sequence: Sequence, error: str) -> None:
        """As `end`, with an error."""
        self._release(sequence)
        sequence.fail(error, self.version)

    def _release(self, sequence: Sequence) -> None:
        if sequence.lane is None:
            self.waiting.remove(sequence)
            return
        self.prefixes.store(sequence)
        sequence.lane.remove(sequence)
        del self.running[sequence.request.request_id]
        if sequence in self.reading:
            self.reading.remove(sequence)

    def turn_to(self, version: int) -> None:
        """The weights are now `version`: running sequences go on as the policy says, and nothing
        old is served to a new one.
        """
        self.version = version
        self.prefixes.turn_to(version)
        for sequence in self.running.values():
            if self.kv_policy is KvPolicy.RECOMPUTE:
                self._read_again(sequence)
            sequence.kv_version = -1 if sequence.done else version

    def _read_again(self, sequence: Sequence) -> None:
        """All ids so far become a prompt to be read; the sequence keeps its row."""
        sequence.done, sequence.chain = 0, []
        if sequence.decoding:
            assert sequence.lane is not None
            sequence.lane.stop_decoding(sequence)
            insort(self.reading, sequence, key=lambda s: s.rank)

    def everyone(self) -> list[Sequence]:
        """All unfinished sequences."""
        return [*self.running.values(), *self.waiting]


def common_blocks(a: list[int], b: list[int]) -> int:
    """Length of the common prefix in whole blocks, in tokens."""
    end = min(len(a), len(b)) // BLOCK * BLOCK
    for start in range(0, end, BLOCK):
        if a[start : start + BLOCK] != b[start : start + BLOCK]:
            return start
    return end
