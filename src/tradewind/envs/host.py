"""Rollouts of a customer's function on behalf of a caller who polls."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from tradewind.envs.play import play
from tradewind.envs.protocol import Env, Policy
from tradewind.envs.secrets import Secrets
from tradewind.types.assignment import Assignment, Progress, RolloutState
from tradewind.types.errors import Conflict, TradewindError
from tradewind.types.ids import RolloutId
from tradewind.types.outcome import Outcome


class Full(TradewindError):
    """As many rollouts run as this server takes; ask again later."""


@dataclass
class _Hosted:
    """One rollout."""

    assignment: Assignment
    state: RolloutState = RolloutState.ACCEPTED
    outcome: Outcome | None = None
    heard_at: float = field(default_factory=time.monotonic)
    """When the caller last asked, in monotonic seconds."""
    running: asyncio.Task[None] | None = None


class RolloutHost:
    """Starts, ends and remembers rollouts; every method may be repeated."""

    def __init__(self, env: Env, secrets: Secrets, max_running: int, max_kept: int) -> None:
        self._env, self._secrets = env, secrets
        self._max_running, self._max_kept = max_running, max_kept
        self._hosted: dict[RolloutId, _Hosted] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> int:
        """Rollouts whose function has not ended."""
        return len(self._tasks)

    def create(self, assignment: Assignment) -> tuple[Progress, bool]:
        """Start a rollout; whether it is new. Raises `Conflict` for an id with another body.

        Raises `Full` if no place is free.
        """
        known = self._hosted.get(assignment.rollout_id)
        if known is not None:
            if known.assignment != assignment:
                raise Conflict(f"{assignment.rollout_id} was asked for with another body")
            known.heard_at = time.monotonic()
            return _progress(known), False
        if len(self._tasks) >= self._max_running:
            raise Full(f"{len(self._tasks)} rollouts run, which is what this server takes")
        self._forget_oldest()
        hosted = self._hosted[assignment.rollout_id] = _Hosted(assignment)
        hosted.running = asyncio.create_task(self._live(hosted), name=assignment.rollout_id)
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

    async def _live(self, hosted: _Hosted) -> None:
        hosted.state = RolloutState.RUNNING
        asked = hosted.assignment
        policy = Policy(**asked.policy.model_dump(), deadline=asked.deadline)
        playing = asyncio.create_task(play(self._env, asked.task, policy))
        try:
            while not playing.done():
                left = hosted.heard_at + asked.lease_s - time.monotonic()
                if left <= 0:
                    hosted.state = RolloutState.EXPIRED
                    return
                await asyncio.wait([playing], timeout=left)
            if not hosted.state.over:
                self._tasks.discard(asyncio.current_task())  # whoever reads the end finds a place
                self._finish(hosted, playing.result())
        finally:
            playing.cancel()
            await asyncio.wait([playing])

    def _finish(self, hosted: _Hosted, outcome: Outcome) -> None:
        keys = Secrets({"the model key": hosted.assignment.policy.api_key})
        outcome = keys.scrub(self._secrets.scrub(outcome))
        good = outcome.status.gradable
        hosted.outcome = outcome
        hosted.state = RolloutState.SUCCEEDED if good else RolloutState.FAILED

    def _end(self, hosted: _Hosted, state: RolloutState) -> None:
        hosted.state = state
        if hosted.running is not None:
            hosted.running.cancel()

    def _forget_oldest(self) -> None:
        over = (rollout for rollout, hosted in self._hosted.items() if hosted.state.over)
        while len(self._hosted) >= self._max_kept + self._max_running:
            del self._hosted[next(over)]
            over = (rollout for rollout, hosted in self._hosted.items() if hosted.state.over)


def _progress(hosted: _Hosted) -> Progress:
    return Progress(
        rollout_id=hosted.assignment.rollout_id, state=hosted.state, outcome=hosted.outcome
    )
