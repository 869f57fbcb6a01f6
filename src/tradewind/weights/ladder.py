"""The ladder: shortcuts to the newest version, published behind the trainer's back.

    trainer ── announce ──► offer ──► one slot, and one for a rung ──► thread ──► shortcuts
                                      (what is overtaken is skipped)

    base ────────── anchor ──────────► rung ── cumulative ──► every version up to the next rung
                                       (every `span`th version, and the mid-trained one)

So from the base any version is two objects away, and from a rung one. A trainer of several ranks
has nowhere a whole tensor to offer: then the thread follows the bucket, as any pool does. It never
stops the trainer: what fails is logged and counted, and the chain goes on without it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tradewind.types.errors import TradewindError
from tradewind.types.weights import WeightVersion
from tradewind.weights.bucket import Bucket
from tradewind.weights.follow import Follower
from tradewind.weights.shortcut import publish_shortcut
from tradewind.weights.state import State
from tradewind.weights.tensors import Array, TensorSet

log = logging.getLogger(__name__)

SPAN = 16
"""Versions between two rungs: the cumulative deltas of a span cost about as much as its singles
again, and the last of them is half as large as those singles together."""
IDLE_S = 60.0
"""Between two looks at whether there is something to do, in seconds; news comes at once."""
LEAST = 2
"""Versions that a shortcut leads over at least; one is what a single is for."""


@dataclass(frozen=True, slots=True)
class LadderStatus:
    """What a ladder has done."""

    published: int = 0
    """Shortcuts."""
    skipped: int = 0
    """Versions that were overtaken by a later one before their turn came."""
    failed: int = 0
    """Versions whose shortcuts could not be published."""
    last_error: str | None = None
    """The sentence of the last failure."""
    finished: bool = True
    """False if the deadline of `close` passed before the thread was done."""


class Ladder:
    """Publishes the shortcuts of one run. `base` are the tensors of version 0.

    `rungs` are versions before the newest one that are rungs although they are no multiple of
    `span`: those that training by another method made.
    """

    def __init__(
        self,
        bucket: Bucket,
        run_id: str,
        base: State,
        *,
        span: int = SPAN,
        rungs: Iterable[int] = (),
        threads: int = 1,
    ) -> None:
        assert span > 0, "a ladder needs rungs"
        self._bucket, self._run_id, self._base = bucket, run_id, base
        self._span, self._threads = span, threads
        self._rungs = {0, *rungs}
        self._rung = self._followed = base  # only the thread uses them
        self._news = threading.Condition()
        self._waiting: list[tuple[WeightVersion, TensorSet | None]] = []
        self._busy = False
        self._closing = False
        self._status = LadderStatus()
        self._thread = threading.Thread(target=self._run, name="ladder", daemon=True)
        self._thread.start()

    def offer(self, version: WeightVersion, tensors: Mapping[str, Array] | None) -> None:
        """Publish the shortcuts to an announced version soon; returns at once.

        The arrays must not change afterwards; None: they are fetched from the bucket. Two versions
        can wait: the newest, and the newest rung.
        """
        if version.version == 0:
            return
        with self._news:
            if version.stage != "rl":
                self._rungs.add(version.version)
            rungs = [job for job in self._waiting if self._is_rung(job[0].version)]
            kept = rungs[-1:] if not self._is_rung(version.version) else []
            skipped = self._status.skipped + len(self._waiting) - len(kept)
            self._status = replace(self._status, skipped=skipped)
            held = TensorSet.of(tensors) if tensors is not None else None
            self._waiting = [*kept, (version, held)]
            self._news.notify_all()

    @property
    def status(self) -> LadderStatus:
        """What has been done so far."""
        with self._news:
            return self._status

    def settle(self, deadline_s: float) -> LadderStatus:
        """Waits until every offer is done, for at most `deadline_s` seconds."""
        with self._news:
            finished = self._news.wait_for(lambda: not self._waiting and not self._busy, deadline_s)
            return replace(self._status, finished=finished)

    def close(self, deadline_s: float) -> LadderStatus:
        """Does what still waits, for at most `deadline_s` seconds, and ends. Idempotent.

        A thread that is not done by then goes on until the process ends; that harms nothing, for a
        shortcut gets its name last.
        """
        with self._news:
            self._closing = True
            self._news.notify_all()
        self._thread.join(deadline_s)
        status = replace(self.status, finished=not self._thread.is_alive())
        if not status.finished:
            log.warning(
                "the ladder was not done after %.0f s; late pools use the chain", deadline_s
            )
        return status

    def _run(self) -> None:
        while (job := self._next()) is not None:
            version, tensors = job
            started = time.monotonic()
            try:
                published = self._publish(version, tensors)
            except TradewindError as error:
                self._fail(version, str(error))
            except Exception as error:  # boundary: nothing in this thread may end the trainer
                log.exception("the ladder failed")
                self._fail(version, f"{type(error).__name__}: {error}")
            else:
                with self._news:
                    total = self._status.published + published
                    self._status = replace(self._status, published=total)
                seconds = time.monotonic() - started
                log.info("version %d: %d shortcuts in %.1f s", version.version, published, seconds)

    def _next(self) -> tuple[WeightVersion, TensorSet | None] | None:
        """The next version; None when closed and nothing waits. Only the trainer ends the wait."""
        with self._news:
            self._busy = False
            self._news.notify_all()
            while not self._waiting and not self._closing:
                self._news.wait(IDLE_S)
            self._busy = bool(self._waiting)
            return self._waiting.pop(0) if self._waiting else None

    def _publish(self, version: WeightVersion, tensors: TensorSet | None) -> int:
        """How many shortcuts to `version` were new."""
        number = version.version
        is_rung = self._is_rung(number)
        starts = (
            {self._newest_rung_below(number), 0} if is_rung else {self._newest_rung_below(number)}
        )
        starts = {start for start in starts if number - start >= LEAST}
        if not starts and not is_rung:
            return 0
        if tensors is None:
            state = self._follow(number)
        else:
            state = State.of(number, tensors, threads=self._threads)
        assert state.state_id == version.state_id, f"not the tensors of version {number}"
        published = sum(self._lead(start, state) for start in sorted(starts))
        if is_rung:
            self._rung = state
        return published

    def _lead(self, start: int, end: State) -> bool:
        """Whether there was no shortcut from `start` to `end` yet."""
        shortcut = publish_shortcut(
            self._bucket,
            self._run_id,
            self._base.state_id,
            self._base if start == 0 else self._state_of(start),
            end,
            threads=self._threads,
        )
        return shortcut is not None

    def _state_of(self, rung: int) -> State:
        """From memory; after a restart, or if the rung was skipped, from the bucket."""
        if self._rung.version != rung:
            self._rung = self._staged(self._base, rung)
        return self._rung

    def _follow(self, version: int) -> State:
        """From the bucket, on from where it was followed to."""
        start = self._followed if self._followed.version < version else self._base
        self._followed = self._staged(start, version)
        return self._followed

    def _staged(self, start: State, version: int) -> State:
        follower = Follower(
            self._bucket,
            start,
            run_id=self._run_id,
            base_state_id=self._base.state_id,
            threads=self._threads,
        )
        return follower.stage(version).state

    def _newest_rung_below(self, version: int) -> int:
        multiple = (version - 1) // self._span * self._span
        with self._news:
            return max(multiple, *(rung for rung in self._rungs if rung < version))

    def _is_rung(self, version: int) -> bool:
        return version % self._span == 0 or version in self._rungs

    def _fail(self, version: WeightVersion, sentence: str) -> None:
        log.warning("version %d has no shortcuts: %s", version.version, sentence)
        with self._news:
            failed = self._status.failed + 1
            self._status = replace(self._status, failed=failed, last_error=sentence)
