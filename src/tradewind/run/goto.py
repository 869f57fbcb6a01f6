"""`tradewind weights go-to`: send a running pool back to a version, or on, and see it arrive."""

from __future__ import annotations

import os
import time

import httpx
from pydantic import ValidationError

from tradewind.types import GoTo, PoolReport, PoolState, Stalled, UserError

KEY_NAME = "TRADEWIND_POOL_KEY"
CALL_S, LOOK_S = 10.0, 0.2
"""For one call, and between two looks, in seconds."""


def go_to(pool: str, version: int | None, wait_s: float) -> PoolReport:
    """The pool's report when it serves `version`, proven; None: when it follows the newest again.

    Raises UserError if the pool cannot be reached or refuses, or if the version fails its proof
    there; Stalled with the pool's reason if it does not serve it within `wait_s`.
    """
    key = os.environ.get(KEY_NAME)
    if not key:
        raise UserError("there is no pool key", fix=f"set {KEY_NAME} to that of the pool")
    with httpx.Client(base_url=pool, timeout=CALL_S, trust_env=False) as client:
        client.headers["Authorization"] = f"Bearer {key}"
        body = GoTo(version=version).model_dump_json()
        report = _report(client, "POST", "/v1/weights/go-to", body)
        deadline = time.monotonic() + wait_s
        while not (version is None or _serves(report, version)):
            if time.monotonic() > deadline:
                waited = f"version {version} in pool {report.pool}: {report.detail or 'no reason'}"
                raise Stalled(waited, owner="pool", seconds=wait_s)
            time.sleep(LOOK_S)
            report = _report(client, "GET", "/v1/health")
    return report


def _serves(report: PoolReport, version: int) -> bool:
    failed = [held for held in report.quarantined if held.version == version]
    if failed and report.version != version:
        raise UserError(
            f"version {version} has no proof in pool {report.pool}, which serves {report.version}",
            value=failed[-1].reason,
            fix="look into the pool's log, or go to another version",
        )
    return (report.version, report.state) == (version, PoolState.SERVING)


def _report(client: httpx.Client, method: str, path: str, body: str | None = None) -> PoolReport:
    try:
        answer = client.request(method, path, content=body)
        if answer.status_code != httpx.codes.OK:
            raise UserError(
                f"the pool refuses ({answer.status_code}: {answer.text[:200]})",
                value=str(client.base_url),
                fix="give the URL and the key of a pool",
            )
        return PoolReport.model_validate_json(answer.content)
    except (httpx.HTTPError, httpx.InvalidURL, ValidationError) as error:
        raise UserError(
            f"no pool answers there ({type(error).__name__})",
            value=str(client.base_url),
            fix="give its URL as `tradewind status` shows it",
        ) from error
