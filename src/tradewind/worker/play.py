"""One lease to one outcome: run the customer's function, and say what its failure means."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from tradewind.envs.protocol import Env, Policy
from tradewind.types.lease import Lease
from tradewind.types.outcome import Outcome, OutcomeStatus

_DETAIL = 2000


async def play(env: Env, lease: Lease) -> Outcome:
    """The outcome of a rollout; raises only `CancelledError`.

    The deadline ends it as AGENT_LIMIT. An exception out of the customer's function is ENV_ERROR,
    unless it is the model endpoint's answer: see `classify`.
    """
    policy = Policy(
        base_url=lease.base_url,
        api_key=lease.model_key,
        model=lease.model,
        deadline=lease.deadline,
    )
    limit = asyncio.timeout(max(0.0, lease.deadline - time.time()))
    try:
        async with limit:
            returned = await env(lease.input, policy)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # boundary: the customer's code
        if limit.expired():
            return Outcome(status=OutcomeStatus.AGENT_LIMIT, detail="the deadline has passed")
        return Outcome(status=classify(error), detail=_describe(error))
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


def classify(error: BaseException) -> OutcomeStatus:
    """What an exception out of the customer's function counts as (promise R4).

    The OpenAI client's errors are told apart by their shape, without importing it: they bear
    `status_code`, or come from its module when there was no answer. A refused request (400, 413,
    422: a context that overflows) is what the policy can cause: AGENT_ERROR. Anything else that
    the endpoint answers, or no answer at all, is the platform's: INFRA_ERROR.
    """
    status = getattr(error, "status_code", None)
    from_client = any(kind.__module__.split(".")[0] == "openai" for kind in type(error).__mro__)
    if not from_client:
        return OutcomeStatus.ENV_ERROR
    if isinstance(status, int) and status in (400, 413, 422):
        return OutcomeStatus.AGENT_ERROR
    return OutcomeStatus.INFRA_ERROR


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:_DETAIL]
