"""Which version is the newest: asked again and again, and far away every question is a round trip.

    nothing new a moment ago?  ── yes ─► latest/<known + 1>     there: its pointer has come as well
                               ── no ──► list latest/           after news, and now and then

So from an announcement to the first frame a pool far away makes three round trips: pointer,
manifest and frame. One that has missed versions sees all of them in the list, and goes to the last.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tradewind.types.errors import RefusedWeights
from tradewind.weights.bucket import NotInBucket, Source
from tradewind.weights.chain import newest_version, read_pointer
from tradewind.weights.manifest import ManifestRef

LIST_S = 30.0
"""The longest that only the next pointer is asked for, in seconds."""


class Announced:
    """The announced versions of one source. Used by one thread."""

    def __init__(self, source: Source, clock: Callable[[], float] = time.monotonic) -> None:
        self._source, self._clock = source, clock
        self._known: int | None = None
        self._ref: ManifestRef | None = None
        self._quiet = False
        self._list_at = 0.0

    def newest(self) -> int | None:
        """The highest announced version; None before the base is announced.

        Raises UserError if the source cannot be reached.
        """
        if self._known is not None and self._asks_next():
            self._look_for(self._known + 1)
            return self._known
        before, self._known = self._known, newest_version(self._source, known=self._known)
        self._quiet = self._known == before
        if not self._quiet:
            self._ref = None
        self._list_at = self._clock() + LIST_S
        return self._known

    def pointer(self, version: int) -> ManifestRef | None:
        """What `latest/<version>` names, if `newest` has just read it."""
        return self._ref if version == self._known else None

    def _asks_next(self) -> bool:
        return self._quiet and self._source.asks_next and self._clock() < self._list_at

    def _look_for(self, version: int) -> None:
        try:
            ref = read_pointer(self._source, version)
        except NotInBucket:
            return
        except RefusedWeights:  # it is announced; whoever goes there is told what is wrong
            ref = None
        self._known, self._ref, self._quiet = version, ref, False
