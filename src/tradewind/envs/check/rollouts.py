"""Checks of a rollout's life: played, asked for twice, ended."""

from __future__ import annotations

import asyncio
import json
import time

from tradewind.envs.check.checks import Check, check, expect_graded
from tradewind.envs.check.model import MODEL, Session
from tradewind.envs.check.subject import (
    Failed,
    Skipped,
    Subject,
    expect,
    expect_refusal,
    progress_in,
)
from tradewind.types.assignment import Progress, RolloutState

STORM = 20
_LOOK_S = 0.02

CHECKS: list[Check] = []


@check(CHECKS, "a rollout", needs_play=False)
async def reachable(s: Subject) -> None:
    """The server answers, and says 404 for what it does not know."""
    for method, path in (("GET", "/rollouts/none"), ("POST", "/rollouts/none/cancel")):
        expect_refusal(await s.call(method, path), (404,), f"{method} of an unknown rollout")


@check(CHECKS, "a rollout", needs_play=False)
async def plays(s: Subject) -> None:
    """201, then succeeded with a graded outcome."""
    session = s.model.open()
    progress = await s.play(session)
    s.calls_per_rollout = session.calls
    if progress.state is not RolloutState.SUCCEEDED:
        detail = progress.outcome.detail if progress.outcome else "no outcome"
        raise Failed(f"it ended as {progress.state.value}: {detail}; give --task one it can play")


@check(CHECKS, "a rollout")
async def calls_the_model(s: Subject) -> None:
    """The agent calls the model it is given, by its name and with its key."""
    session = s.model.open()
    await s.play(session)
    if session.calls == 0:
        other = f"; {s.model.strangers} calls came with another key" if s.model.strangers else ""
        raise Failed(f"the model was never called, so every rollout would be null{other}")
    if session.models != {MODEL}:
        raise Failed(f"it asked for {', '.join(sorted(session.models))}, the policy is {MODEL}")


@check(CHECKS, "a rollout")
async def answers_at_once(s: Subject) -> None:
    """POST /rollouts answers before the rollout is played."""
    session = s.model.open(held=True)
    try:
        body = json.dumps(s.body(session)).encode()
        answer = await s.call("POST", "/rollouts", body)
        expect(answer, 201, "a new rollout")
    finally:
        session.release()


@check(CHECKS, "a rollout")
async def two_at_once(s: Subject) -> None:
    """Two rollouts at a time keep their keys apart."""
    sessions = [s.model.open(held=True), s.model.open(held=True)]
    try:
        first = await s.start(sessions[0])
        body = s.body(sessions[1])
        answer = await s.post(body)
        if answer.status_code == 429:
            raise Skipped("it takes one rollout at a time")
        expect(answer, 201, "a second rollout")
        for session in sessions:
            if not await session.called(s.limits.patience_s):
                raise Failed("one rollout does not call the model while the other waits for it")
    finally:
        for session in sessions:
            session.release()
    for rollout in (first, body["rollout_id"]):
        await s.until_over(rollout)
    if sessions[0].calls != sessions[1].calls:
        raise Failed(f"one key was used {sessions[0].calls} times, one {sessions[1].calls} times")


@check(CHECKS, "idempotence")
async def create_twice(s: Subject) -> None:
    """The same id and body again is 200 and starts nothing."""
    session = s.model.open(held=True)
    body = s.body(session)
    try:
        expect(await s.post(body), 201, "a new rollout")
        await session.called(s.limits.patience_s)
        again = await s.post(body)
        expect(again, 200, "the same body again")
        progress_in(again, body["rollout_id"])
    finally:
        session.release()
    await s.until_over(body["rollout_id"])
    await _played_once(s, session)


@check(CHECKS, "idempotence")
async def another_body(s: Subject) -> None:
    """The same id with another body is 409."""
    session, body = await s.begin()
    answer = await s.post({**body, "task": {**s.task, "tradewind_check": 1}})
    expect_refusal(answer, (409,), "the same id with another body")
    await s.until_over(body["rollout_id"])
    await _played_once(s, session)


@check(CHECKS, "idempotence")
async def retry_storm(s: Subject) -> None:
    """20 copies of one request at the same moment start one rollout."""
    session = s.model.open()
    body = s.body(session)
    answers = await asyncio.gather(*(s.post(body) for _ in range(STORM)))
    statuses = sorted(answer.status_code for answer in answers)
    if statuses != [200] * (STORM - 1) + [201]:
        counts = ", ".join(f"{statuses.count(c)} x {c}" for c in sorted(set(statuses)))
        raise Failed(f"{STORM} copies were answered with {counts}; one 201, the others 200")
    await s.until_over(body["rollout_id"])
    await _played_once(s, session)


@check(CHECKS, "idempotence")
async def create_after_end(s: Subject) -> None:
    """The same request after the end gives the same outcome."""
    session, body = await s.begin()
    before = await s.until_over(body["rollout_id"])
    answer = await s.post(body)
    expect(answer, 200, "the same body after the end")
    _same(before, progress_in(answer, body["rollout_id"]), "asking for it again")
    await _played_once(s, session)


@check(CHECKS, "idempotence")
async def result_stays(s: Subject) -> None:
    """A result that was given stays: read twice, cancelled too late."""
    rollout = await s.start(s.model.open())
    before = await s.until_over(rollout)
    _same(before, await s.get(rollout), "reading it again")
    _same(before, await s.cancel(rollout), "cancelling it after its end")
    _same(before, await s.get(rollout), "cancelling it after its end")


@check(CHECKS, "ends")
async def cancel(s: Subject) -> None:
    """Cancel ends the agent, and may be repeated."""
    session = s.model.open(held=True)
    try:
        rollout = await s.start(session)
        if not await session.called(s.limits.patience_s):
            raise Failed("the model was never called")
        await s.cancel(rollout)
        await s.cancel(rollout)
        progress = await s.until_over(rollout)
    finally:
        session.release()
    if progress.state is not RolloutState.CANCELLED:
        raise Failed(f"a cancelled rollout is {progress.state.value}")
    more = await _calls_beyond(s, session, session.calls)
    if more:
        raise Failed(f"the agent called the model {more} more times after it was cancelled")
    _same(progress, await s.get(rollout), "the agent's end")


@check(CHECKS, "ends")
async def lease_lost(s: Subject) -> None:
    """Without polls for lease_s it is expired: no orphan goes on."""
    session = s.model.open(held=True)
    try:
        rollout = await s.start(session, lease_s=s.limits.lease_s)
        if not await session.called(s.limits.patience_s):
            raise Failed("the model was never called")
        await asyncio.sleep(s.limits.lease_s + s.limits.settle_s)  # the protocol's own clock
        progress = await s.get(rollout)
    finally:
        session.release()
    if progress.state is not RolloutState.EXPIRED:
        raise Failed(
            f"nobody asked for {s.limits.lease_s + s.limits.settle_s:g} s, lease_s was "
            f"{s.limits.lease_s:g}, and it is {progress.state.value}, not expired"
        )


@check(CHECKS, "ends")
async def polls_renew(s: Subject) -> None:
    """Polls keep it alive for longer than lease_s."""
    session = s.model.open(held=True)
    try:
        rollout = await s.start(session, lease_s=s.limits.lease_s)
        until = time.monotonic() + 2 * s.limits.lease_s
        while time.monotonic() < until:
            progress = await s.get(rollout)
            if progress.state.over:
                raise Failed(f"polled all the time, and it is {progress.state.value}")
            await asyncio.sleep(s.limits.lease_s / 10)
    finally:
        session.release()
    if (await s.until_over(rollout)).state is not RolloutState.SUCCEEDED:
        raise Failed("it did not succeed after the model had answered")


@check(CHECKS, "ends")
async def deadline(s: Subject) -> None:
    """The deadline ends it, and what came of it is graded."""
    session = s.model.open(held=True)
    try:
        rollout = await s.start(session, deadline=time.time() + 1.0)
        progress = await s.until_over(rollout, 1.0 + s.limits.patience_s)
    finally:
        session.release()
    expect_graded(progress, "the deadline has passed", "agent_limit")


async def _played_once(s: Subject, session: Session) -> None:
    expected = s.calls_per_rollout
    more = await _calls_beyond(s, session, expected)
    if more:
        raise Failed(
            f"the model was called {expected + more} times instead of {expected}: "
            "the rollout was started more than once"
        )


def _same(before: Progress, after: Progress, what: str) -> None:
    if after != before:
        raise Failed(f"{what} changed the result from {before.state.value} to {after.state.value}")


async def _calls_beyond(s: Subject, session: Session, calls: int) -> int:
    """How many more calls than so many there are, or come within `settle_s`."""
    until = time.monotonic() + s.limits.settle_s
    while session.calls <= calls and time.monotonic() < until:
        await asyncio.sleep(_LOOK_S)  # nothing may come: there is no event to wait for
    return max(0, session.calls - calls)
