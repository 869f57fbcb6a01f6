"""Rollouts of a customer's function on behalf of a caller who polls."""

from __future__ import annotations

import asyncio
import hashlib
import time
from dataclasses import dataclass, field

from tradewind.envs.play import play
from tradewind.envs.protocol import Env, Policy
from tradewind.envs.secrets import Secrets
from tradewind.envs.shelf import Shelf, Shelved
from tradewind.types.assignment import Assignment, Progress, RolloutState
from tradewind.types.errors import Conflict, TradewindError
from tradewind.types.ids import RolloutId
from tradewind.types.outcome import Outcome


class Full(TradewindError):
    """As many rollouts run as this server takes; ask again later."""


@dataclass
class _Hosted:
    """One rollout."""

    rollout_id: RolloutId
    digest: str
    """SHA-256 of the body with which it was asked for."""
    state: RolloutState = RolloutState.ACCEPTED
    outcome: Outcome | None = None
    heard_at: float = field(default_factory=time.monotonic)
    """When the caller last asked, in monotonic seconds."""
    running: asyncio.Task[None] | None = None


class RolloutHost:
    """Starts, ends and remembers rollouts, on a shelf; every method may be repeated."""

    def __init__(
        self, env: Env, secrets: Secrets, max_running: int, max_kept: int, shelf: Shelf
    ) -> None:
        self._env, self._secrets, self._shelf = env, secrets, shelf
        self._max_running, self._max_kept = max_running, max_kept
        self._hosted = {left.rollout_id: _Hosted(*left) for left in shelf.left()}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> int:
        """Rollouts whose function has not ended."""
        return len(self._tasks)

    def create(self, assignment: Assignment) -> tuple[Progress, bool]:
        """Start a rollout; whether it is new. Raises `Conflict` for an id with another body.

        Raises `Full` if no place is free.
        """
        digest = hashlib.sha256(assignment.model_dump_json().encode()).hexdigest()
        known = self._hosted.get(assignment.rollout_id)
        if known is not None:
            if known.digest != digest:
                raise Conflict(f"{assignment.rollout_id} was asked for with another body")
            known.heard_at = time.monotonic()
            return _progress(known), False
        if len(self._tasks) >= self._max_running:
            raise Full(f"{len(self._tasks)} rollouts run, which is what this server takes")
        self._forget_oldest()
        hosted = self._hosted[assignment.rollout_id] = _Hosted(assignment.rollout_id, digest)
        self._keep(hosted)
        playing = self._live(hosted, assignment)
        hosted.running = asyncio.create_task(playing, name=assignment.rollout_id)
        self._tasks.add(hosted.running)
        hosted.running.add_done_callback(self._tasks.discard)
        return _progress(hosted), True

    def get(self, rollout: RolloutId) -> Progress | None:
        """How far it is, and the caller is still there; None if it is unknown or forgotten."""
        hosted = self._hosted.get(rollout)
        if hosted is None:
            return None
        hosted.heard_at = time.monotonic()
        return _progress(hosted)

    def cancel(self, rollout: RolloutId) -> Progress | None:
        """End a rollout; one that is over stays what it is."""
        hosted = self._hosted.get(rollout)
        if hosted is None:
            return None
        if not hosted.state.over:
            self._end(hosted, RolloutState.CANCELLED)
        return _progress(hosted)

    async def close(self) -> None:
        """Cancel everything and wait until the functions have ended."""
        for hosted in self._hosted.values():
            if not hosted.state.over:
                self._end(hosted, RolloutState.CANCELLED)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._shelf.close()

    async def _live(self, hosted: _Hosted, asked: Assignment) -> None:
        hosted.state = RolloutState.RUNNING
        policy = Policy(**asked.policy.model_dump(), deadline=asked.deadline)
        playing = asyncio.create_task(play(self._env, asked.task, policy))
        try:
            while not playing.done():
                left = hosted.heard_at + asked.lease_s - time.monotonic()
                if left <= 0:
                    hosted.state = RolloutState.EXPIRED
                    self._keep(hosted)
                    return
                await asyncio.wait([playing], timeout=left)
            if not hosted.state.over:
                self._tasks.discard(asyncio.current_task())  # whoever reads the end finds a place
                self._finish(hosted, playing.result(), asked)
        finally:
            playing.cancel()
            await asyncio.wait([playing])

    def _finish(self, hosted: _Hosted, outcome: Outcome, asked: Assignment) -> None:
        keys = Secrets({"the model key": asked.policy.api_key})
        outcome = keys.scrub(self._secrets.scrub(outcome))
        good = outcome.status.gradable
        hosted.outcome = outcome
        hosted.state = RolloutState.SUCCEEDED if good else RolloutState.FAILED
        self._keep(hosted)

    def _end(self, hosted: _Hosted, state: RolloutState) -> None:
        hosted.state = state
        self._keep(hosted)
        if hosted.running is not None:
            hosted.running.cancel()

    def _keep(self, hosted: _Hosted) -> None:
        self._shelf.put(Shelved(hosted.rollout_id, hosted.digest, hosted.state, hosted.outcome))

    def _forget_oldest(self) -> None:
        """Room for one more; what still runs is never forgotten."""
        surplus = len(self._hosted) + 1 - self._max_kept - self._max_running
        over = [rollout for rollout, hosted in self._hosted.items() if hosted.state.over]
        for oldest in over[: max(0, surplus)]:
            del self._hosted[oldest]
            self._shelf.forget(oldest)


def _progress(hosted: _Hosted) -> Progress:
    return Progress(rollout_id=hosted.rollout_id, state=hosted.state, outcome=hosted.outcome)
