"""The trainer's place in the ledger, and its word about what it does or waits for (promise P1)."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from types import TracebackType

from tradewind.ledger.ledger import Ledger
from tradewind.types import Beat, Conflict, Event, LedgerAway
from tradewind.types.errors import Stalled

log = logging.getLogger(__name__)


class Pulse:
    """Holds the place while the context lasts; a thread renews it and repeats the beat.

    One beat tells of two things: what the trainer does or waits for, and what goes on `beside` it.
    Any thread may speak. Entering waits out the lease of a trainer that died, at most its time to
    live, and raises `Conflict` as soon as the other one shows that it lives.
    """

    def __init__(self, ledger: Ledger, ttl_s: float, process: str = "trainer") -> None:
        self.owner = f"{process}@{socket.gethostname()}:{os.getpid()}"
        self._ledger, self._ttl_s, self._process = ledger, ttl_s, process
        self._speaking = threading.Lock()
        self._beat = self._new("start")
        self._beside: str | None = None
        self._over = threading.Event()
        self._lost: Conflict | None = None
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)

    def __enter__(self) -> Pulse:
        self._take()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        if error is not None:
            self.doing(f"ended: {error}")
        self._ledger.release_trainer(self.owner)

    def doing(self, what: str) -> None:
        """Say what happens now; raises `Conflict` if the place was lost."""
        self._say(self._new(what))

    def waiting(self, what: str, waiting_for: str, owner: str) -> None:
        """Say what is waited for, and which process can end the wait; raises like `doing`."""
        self._say(self._new(what, waiting_for, owner))

    def beside(self, what: str | None) -> None:
        """Say what goes on in the background, None: nothing."""
        with self._speaking:
            self._beside = what
            self._tell()

    def check(self) -> None:
        """Raises `Conflict` if the place was lost."""
        if self._lost is not None:
            raise self._lost

    def event(self, kind: str, subject: str, detail: str) -> None:
        """Append an event of this process."""
        self._ledger.event(
            Event(at=time.time(), process=self._process, kind=kind, subject=subject, detail=detail)
        )

    def _say(self, beat: Beat) -> None:
        self.check()
        with self._speaking:
            said = (beat.doing, beat.waiting_for) == (self._beat.doing, self._beat.waiting_for)
            if not said:
                self._beat = beat
                self._tell()

    def _tell(self) -> None:
        beat = self._beat.model_copy(update={"at": time.time()})
        if self._beside is not None:
            beat = beat.model_copy(update={"doing": f"{beat.doing}; {self._beside}"})
        try:
            self._ledger.beat(beat)
        except (LedgerAway, Stalled) as error:  # the next one tells
            log.warning("%s", error)

    def _new(self, doing: str, waiting_for: str | None = None, owner: str | None = None) -> Beat:
        now = time.time()
        return Beat(
            process=self._process,
            doing=doing,
            waiting_for=waiting_for,
            owner=owner,
            since=now,
            at=now,
        )

    def _take(self) -> None:
        known = float("inf")
        while True:
            try:
                self._ledger.acquire_trainer(self.owner, time.time(), self._ttl_s)
                return
            except Conflict:
                holder, until = self._ledger.trainer() or ("nobody", 0.0)
                if until > known:
                    raise
                known = until
                self.waiting("start", f"the place of {holder}, which fell silent", holder)
            self._over.wait(min(0.2, self._ttl_s / 10))

    def _run(self) -> None:
        while not self._over.wait(min(2.0, self._ttl_s / 5)):
            try:
                self._ledger.acquire_trainer(self.owner, time.time(), self._ttl_s)
                with self._speaking:
                    self._tell()
            except Conflict as error:
                self._lost = error
                return
            except (LedgerAway, Stalled) as error:  # whoever took the place meanwhile says so
                log.warning("the trainer's place could not be renewed: %s", error)
