"""Where the customer's functions run: an event loop in a thread of its own.

They may block it: a test suite in `subprocess.run`, a driver without async. The worker's own loop
goes on meanwhile with leases, heartbeats and reports, so no healthy rollout loses its lease; and a
function that blocks beyond its deadline is ended as it stands, like one that can be interrupted.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Self

from tradewind.envs.protocol import Env
from tradewind.types.lease import Lease
from tradewind.types.outcome import Outcome, OutcomeStatus
from tradewind.worker.play import Player, play

_LATE_S = 1.0
"""So long after the deadline the function's own loop has had its chance to end the rollout."""
_CLEANUP_S = 1.0
"""How long a cancelled function is waited for."""

_BLOCKED = Outcome(
    status=OutcomeStatus.AGENT_LIMIT,
    detail="the deadline has passed while the environment blocked its event loop",
)


class Stage:
    """The thread. Use as a context manager; a function that still blocks then is left behind."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="stage", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLEANUP_S)

    def player(self, env: Env) -> Player:
        """Plays leases with a customer's function, over there."""

        async def play_there(lease: Lease) -> Outcome:
            ended = threading.Event()

            async def whole() -> Outcome:
                try:
                    return await play(env, lease)
                finally:
                    ended.set()

            there = asyncio.run_coroutine_threadsafe(whole(), self._loop)
            playing = asyncio.wrap_future(there)
            try:
                left = max(0.0, lease.deadline - time.time()) + _LATE_S
                done, _late = await asyncio.wait({playing}, timeout=left)
            except asyncio.CancelledError:
                there.cancel()
                await asyncio.to_thread(ended.wait, _CLEANUP_S)
                raise
            if done:
                return playing.result()
            there.cancel()
            return _BLOCKED

        return play_there

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
