"""Run the customer's function once, and say what its failure means."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

import httpx
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from tradewind.envs.protocol import AgentFailed, Env, Policy
from tradewind.envs.version import name_and_version
from tradewind.types.outcome import Outcome, OutcomeStatus
from tradewind.types.record import Json

_DETAIL = 2000
_CLIENTS = ("openai", "anthropic")


async def play(env: Env, task: Json, policy: Policy) -> Outcome:
    """The outcome of a rollout; raises only `CancelledError`.

    The deadline ends it as AGENT_LIMIT. An exception out of the customer's function is ENV_ERROR,
    unless it is the model endpoint's answer: see `classify`. It says which version of the
    environment played.
    """
    outcome = await _played(env, task, policy)
    if outcome.environment is None:
        outcome = outcome.model_copy(update={"environment": name_and_version(env)})
    return outcome


async def _played(env: Env, task: Json, policy: Policy) -> Outcome:
    limit = asyncio.timeout(max(0.0, policy.deadline - time.time()))
    try:
        async with limit:
            returned = await env(task, policy)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # boundary: the customer's code
        if limit.expired():
            return Outcome(status=OutcomeStatus.AGENT_LIMIT, detail="the deadline has passed")
        return Outcome(status=classify(error, policy.base_url), detail=_describe(error))
    return checked(returned)


def checked(returned: object) -> Outcome:
    """What the function returned, if it is an outcome that can be sent; else an ENV_ERROR."""
    try:
        if isinstance(returned, Mapping):
            returned = Outcome.model_validate(returned)
        if not isinstance(returned, Outcome):
            raise TypeError(f"the environment returned {returned!r:.200}, not an Outcome")
        return Outcome.model_validate_json(returned.model_dump_json())
    except (TypeError, ValidationError, PydanticSerializationError, ValueError) as error:
        return Outcome(status=OutcomeStatus.ENV_ERROR, detail=_describe(error))


def classify(error: BaseException, base_url: str) -> OutcomeStatus:
    """What an exception out of the customer's function counts as (promise R4).

    `AgentFailed` is AGENT_ERROR. The OpenAI and Anthropic clients' errors are told apart by their
    shape, without importing them: they bear `status_code`, or come from the client's module when
    there was no answer; httpx's by whether the request went to `base_url`. A refused request (400,
    413, 422: a context that overflows) is what the policy can cause: AGENT_ERROR. Anything else
    that the model endpoint answers, or no answer at all, is the platform's: INFRA_ERROR. All other
    exceptions are the environment's.
    """
    if isinstance(error, AgentFailed):
        return OutcomeStatus.AGENT_ERROR
    if isinstance(error, httpx.HTTPError):
        if not _went_to(error, base_url):
            return OutcomeStatus.ENV_ERROR
        status = error.response.status_code if isinstance(error, httpx.HTTPStatusError) else None
    elif any(kind.__module__.split(".")[0] in _CLIENTS for kind in type(error).__mro__):
        status = getattr(error, "status_code", None)
    else:
        return OutcomeStatus.ENV_ERROR
    return OutcomeStatus.AGENT_ERROR if status in (400, 413, 422) else OutcomeStatus.INFRA_ERROR


def _went_to(error: httpx.HTTPError, base_url: str) -> bool:
    try:
        return str(error.request.url).startswith(base_url.removesuffix("/v1"))
    except RuntimeError:  # an error without its request
        return False


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:_DETAIL]
