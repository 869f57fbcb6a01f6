"""One piece of work behind the trainer's back.

    main thread     step n ─► start(n) ─► claim, forward, backward of n + 1 ─► settle ─► update
                                 │                                               ▲
    thread                       └─► upload ─► checkpoint ─► commit ─► announce ─┘

At most one is in flight, and the weights do not change before it is over, so it reads parameters,
masters and moments where they are. What it fails with is raised in the main thread, at the latest
when the next step wants to change the weights.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from types import TracebackType

from tradewind.types import Stalled

LINGER_S = 60.0
"""How long a trainer that ends with an error waits for what is in flight, in seconds."""
LOG = logging.getLogger(__name__)

Work = Callable[[], None]


class Behind:
    """The context's end waits for what is in flight: a step that is trained and uploaded shall not
    be lost because the next one failed.
    """

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._work: Future[None] | None = None
        self.number = -1
        """Of the step whose work was started last."""

    def __enter__(self) -> Behind:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if error is None:
            self.settle()
        elif self._work is not None:
            wait([self._work], LINGER_S)
            if not self._work.done() or self._work.exception() not in (None, error):
                LOG.warning("step %d was not published either", self.number)

    def start(self, number: int, work: Work) -> None:
        """Do the work of step `number`, as soon as that of the step before is over."""
        self.settle()
        self.number, self._work = number, Future()
        threading.Thread(
            target=_run, args=(work, self._work), name=f"publish-{number}", daemon=True
        ).start()

    @property
    def busy(self) -> bool:
        """Whether something is in flight."""
        return self._work is not None and not self._work.done()

    def check(self) -> None:
        """Raises what the work failed with, if it is over and failed."""
        if self._work is not None and self._work.done():
            self._work.result()

    def settle(self) -> None:
        """Wait until nothing is in flight.

        Raises:
            Stalled: the work takes longer than the deadline.
            Exception: what the work failed with.
        """
        if self._work is None:
            return
        wait([self._work], self._deadline_s)
        if not self._work.done():
            what = f"the publication of step {self.number}"
            raise Stalled(what, owner="bucket", seconds=self._deadline_s)
        self._work.result()
        self._work = None


def _run(work: Work, future: Future[None]) -> None:
    try:
        work()
    except BaseException as error:  # boundary: raised again in the main thread  # noqa: BLE001
        future.set_exception(error)
    else:
        future.set_result(None)
