"""Run the checks against a server; each failure is a line of the table, never the end of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from enum import StrEnum

from tradewind.envs.check import requests, rollouts, trouble
from tradewind.envs.check.checks import Check
from tradewind.envs.check.subject import Failed, Skipped, Subject
from tradewind.types.errors import UserError
from tradewind.types.record import Record

CHECKS = (*rollouts.CHECKS, *requests.CHECKS, *trouble.CHECKS)
"""All, in the order of the table."""

_FIRST = "plays"
_LONGEST = 8
"""No check takes longer than so many times `patience_s`."""


class Verdict(StrEnum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Finding(Record):
    """One line of the table."""

    name: str
    group: str
    claim: str
    verdict: Verdict
    seconds: float
    detail: str | None = None
    """What was seen, if it did not pass."""


def chosen(only: Sequence[str]) -> list[Check]:
    """The checks of these names, and `plays` before them; all if none is named.

    Raises `UserError` for a name that is no check's.
    """
    names = [check.name for check in CHECKS]
    for name in only:
        if name not in names:
            raise UserError("there is no such check", value=name, fix=f"one of {', '.join(names)}")
    return [check for check in CHECKS if not only or check.name in (*only, _FIRST)]


async def examine(
    subject: Subject, only: Sequence[str] = (), tell: Callable[[Finding], None] = lambda _: None
) -> list[Finding]:
    """Run the checks one after another; `tell` hears of each as it ends."""
    findings: list[Finding] = []
    can_play = True
    outcome: tuple[Verdict, str | None]
    for check in chosen(only):
        began = time.monotonic()
        if check.needs_play and not can_play:
            outcome = (Verdict.SKIPPED, "no rollout can be played")
        else:
            outcome = await _try(check, subject)
        verdict, detail = outcome
        if check.name == _FIRST:
            can_play = verdict is Verdict.PASSED
        finding = Finding(
            name=check.name,
            group=check.group,
            claim=check.claim,
            verdict=verdict,
            seconds=round(time.monotonic() - began, 3),
            detail=detail,
        )
        findings.append(finding)
        tell(finding)
    return findings


async def _try(check: Check, subject: Subject) -> tuple[Verdict, str | None]:
    try:
        async with asyncio.timeout(_LONGEST * subject.limits.patience_s):
            await check.run(subject)
    except Failed as failure:
        return Verdict.FAILED, str(failure)
    except Skipped as reason:
        return Verdict.SKIPPED, str(reason)
    except TimeoutError:
        return Verdict.FAILED, "it took too long"
    return Verdict.PASSED, None
