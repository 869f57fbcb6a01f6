"""Checks of what an environment makes of trouble with the model, and of what it tells."""

from __future__ import annotations

import time
from collections.abc import Callable

from tradewind.envs.check.checks import Check, check, expect_graded
from tradewind.envs.check.model import BUSY, DOWN, ENDED, OVERFLOW, Refusal
from tradewind.envs.check.subject import Failed, Subject
from tradewind.types.assignment import RolloutState

MOST_CALLS = 30
_PATIENT_CALLS = 5

CHECKS: list[Check] = []


@check(CHECKS, "model trouble")
async def overflow(s: Subject) -> None:
    """A context that overflows is graded: the policy caused it."""
    progress = await s.play(s.model.open(refusal=_always(OVERFLOW)))
    expect_graded(progress, "the context overflows", "agent_error or agent_limit")


@check(CHECKS, "model trouble")
async def model_busy(s: Subject) -> None:
    """A busy model (429) is waited for, not hammered."""
    session = s.model.open()
    session.refusal = lambda _n: BUSY if _age(session.first_at) < 1.0 else None
    await s.play(session)
    if session.calls > 2 * s.calls_per_rollout + _PATIENT_CALLS:
        raise Failed(f"{session.calls} calls while the model asked to wait 1 s; heed Retry-After")


@check(CHECKS, "model trouble")
async def model_down(s: Subject) -> None:
    """A model that is down is null with its cause, never a wrong answer."""
    session = s.model.open(refusal=_always(DOWN))
    progress = await s.play(session)
    if progress.state is not RolloutState.FAILED:
        status = progress.outcome.status.value if progress.outcome else progress.state.value
        raise Failed(f"no call was answered, and it says {status}; say infra_error")
    if progress.outcome is None or not progress.outcome.detail:
        raise Failed("the outcome is null without a cause; put it in detail")
    if session.calls > MOST_CALLS:
        raise Failed(f"{session.calls} calls of a model that is down; give up earlier")


@check(CHECKS, "model trouble")
async def session_over(s: Subject) -> None:
    """A session that is over (409) ends the agent."""
    session = s.model.open(refusal=_always(ENDED))
    await s.play(session)
    if session.calls > MOST_CALLS:
        raise Failed(f"{session.calls} calls of a session that is over; 409 is final")


@check(CHECKS, "secrets", needs_play=False)
async def secrets_stay(s: Subject) -> None:
    """No answer tells the model's key or the signing secret."""
    for what, secret in [("the signing secret", s.key[1])] + [
        ("a model key", key) for key in s.model.keys
    ]:
        if secret.encode() in s.said:
            raise Failed(f"an answer contained {what}; take it out of outcomes and errors")


def _always(refusal: Refusal) -> Callable[[int], Refusal]:
    return lambda _call: refusal


def _age(at: float | None) -> float:
    return 0.0 if at is None else time.monotonic() - at
