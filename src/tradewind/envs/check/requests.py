"""Checks of single requests: signed, fresh, new, fitting, not too large."""

from __future__ import annotations

import json
import time

import httpx

from tradewind.envs.check.checks import Check, check
from tradewind.envs.check.rollouts import reachable
from tradewind.envs.check.subject import Failed, Subject, expect, expect_refusal
from tradewind.envs.signature import sign

_LARGE = 33_000_000
_DAY_S = 86_400

CHECKS: list[Check] = []


@check(CHECKS, "signature", needs_play=False)
async def unsigned(s: Subject) -> None:
    """A request that is not signed is 401."""
    body = json.dumps(s.body(s.model.open())).encode()
    for method, path, content in (
        ("POST", "/rollouts", body),
        ("GET", "/rollouts/none", b""),
        ("POST", "/rollouts/none/cancel", b""),
    ):
        answer = await s.call(method, path, content, headers={})
        expect_refusal(answer, (401,), f"unsigned {method} {path}")


@check(CHECKS, "signature", needs_play=False)
async def bad_signature(s: Subject) -> None:
    """Another secret, body, path, method or key id is 401."""
    body = json.dumps(s.body(s.model.open())).encode()
    key_id, secret = s.key
    forged = {
        "a wrong secret": sign((key_id, secret[::-1] + "x"), "POST", "/rollouts", body),
        "an unknown key id": sign((key_id + "x", secret), "POST", "/rollouts", body),
        "another body": sign(s.key, "POST", "/rollouts", body + b" "),
        "another path": sign(s.key, "POST", "/rollouts/none/cancel", body),
        "another method": sign(s.key, "PUT", "/rollouts", body),
    }
    moved = sign(s.key, "POST", "/rollouts", body)
    forged["another timestamp"] = {**moved, "Tradewind-Timestamp": str(int(time.time()) - 5)}
    forged["another nonce"] = {**moved, "Tradewind-Nonce": "0" * 32}
    for what, headers in forged.items():
        answer = await s.call("POST", "/rollouts", body, headers=headers)
        expect_refusal(answer, (401,), f"a signature over {what}")


@check(CHECKS, "signature", needs_play=False)
async def stale_timestamp(s: Subject) -> None:
    """A timestamp more than five minutes off is 401."""
    for what, off in (("ten minutes ago", -600), ("in ten minutes", 600), ("yesterday", -_DAY_S)):
        body = json.dumps(s.body(s.model.open())).encode()
        headers = sign(s.key, "POST", "/rollouts", body, at=time.time() + off)
        answer = await s.call("POST", "/rollouts", body, headers=headers)
        expect_refusal(answer, (401,), f"a request signed {what}")


@check(CHECKS, "signature")
async def replayed_nonce(s: Subject) -> None:
    """A nonce that was used before is 401."""
    body = json.dumps(s.body(s.model.open())).encode()
    headers = sign(s.key, "POST", "/rollouts", body)
    expect(await s.call("POST", "/rollouts", body, headers=headers), 201, "a new rollout")
    answer = await s.call("POST", "/rollouts", body, headers=headers)
    expect_refusal(answer, (401,), "the very same request again")


@check(CHECKS, "schema", needs_play=False)
async def wrong_schema(s: Subject) -> None:
    """A body that does not fit is a 4xx with a sentence."""
    session = s.model.open()
    bodies = {
        "no JSON": b"not json",
        "a list": b"[]",
        "no policy": json.dumps(s.body(session, policy=None)).encode(),
        "no rollout_id": json.dumps(s.body(session, rollout_id=None)).encode(),
        "a task that is no object": json.dumps(s.body(session, task="x")).encode(),
        "a deadline that is no number": json.dumps(s.body(session, deadline="soon")).encode(),
        "protocol 99": json.dumps(s.body(session, protocol=99)).encode(),
    }
    for what, body in bodies.items():
        answer = await s.call("POST", "/rollouts", body)
        expect_refusal(answer, (400, 422), f"a body with {what}")


@check(CHECKS, "schema", needs_play=False)
async def large_body(s: Subject) -> None:
    """A body of 33 MB is refused and hurts nobody."""
    body = json.dumps(s.body(s.model.open(), task={"x": "x" * _LARGE})).encode()
    try:
        answer: httpx.Response | None = await s.call("POST", "/rollouts", body)
    except Failed:  # closing the line while it is still being sent is a refusal, too
        answer = None
    if answer is not None and answer.status_code not in (400, 413, 422):
        raise Failed(f"33 MB are answered with {answer.status_code}, not 413: set a bound")
    await reachable(s)
