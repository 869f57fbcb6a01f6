"""What an outcome or an exception of the customer's function counts as."""

from __future__ import annotations

import asyncio
import sys
import time

import httpx
import openai
import pytest

from tradewind.envs.protocol import AgentFailed
from tradewind.types import Lease, Outcome, OutcomeStatus
from tradewind.worker.play import play


def a_lease(seconds: float = 60.0) -> Lease:
    return Lease(
        rollout_id="g000000-r0",
        task_id="t",
        input={"q": 1},
        base_url="http://x/v1",
        model="policy",
        model_key="mk",
        result_key="rk",
        deadline=time.time() + seconds,
        heartbeat_s=1.0,
    )


def run(env, seconds: float = 60.0) -> Outcome:
    return asyncio.run(play(env, a_lease(seconds)))


def api_error(status: int) -> openai.APIStatusError:
    request = httpx.Request("POST", "http://x/v1/chat/completions")
    response = httpx.Response(status, request=request)
    return openai.APIStatusError("refused", response=response, body=None)


def http_error(url: str, status: int | None) -> httpx.HTTPError:
    request = httpx.Request("POST", url)
    if status is None:
        return httpx.ConnectError("refused", request=request)
    return httpx.HTTPStatusError("no", request=request, response=httpx.Response(status))


def raises(error: BaseException):
    async def env(task, policy):
        raise error

    return env


def returns(value):
    async def env(task, policy):
        return value

    return env


def test_the_agent_gets_the_models_address_and_never_the_result_key():
    async def env(task, policy):
        return Outcome(status="completed", artefacts={**policy.model_dump(), **task})

    artefacts = run(env).artefacts
    assert artefacts["api_key"] == "mk" and artefacts["q"] == 1
    assert "rk" not in str(artefacts)


@pytest.mark.parametrize(
    "error,status",
    [
        (KeyError("x"), OutcomeStatus.ENV_ERROR),
        (AgentFailed("no such tool"), OutcomeStatus.AGENT_ERROR),
        (http_error("http://x/v1/chat/completions", 400), OutcomeStatus.AGENT_ERROR),
        (http_error("http://x/v1/chat/completions", 503), OutcomeStatus.INFRA_ERROR),
        (http_error("http://x/v1/chat/completions", None), OutcomeStatus.INFRA_ERROR),
        (http_error("http://their-product/orders", 400), OutcomeStatus.ENV_ERROR),
        (http_error("http://their-product/orders", None), OutcomeStatus.ENV_ERROR),
        (TimeoutError("their own"), OutcomeStatus.ENV_ERROR),
        (SystemExit(0), OutcomeStatus.ENV_ERROR),
        (api_error(400), OutcomeStatus.AGENT_ERROR),
        (api_error(409), OutcomeStatus.INFRA_ERROR),
        (api_error(401), OutcomeStatus.INFRA_ERROR),
        (api_error(429), OutcomeStatus.INFRA_ERROR),
        (api_error(503), OutcomeStatus.INFRA_ERROR),
        (
            openai.APIConnectionError(request=httpx.Request("POST", "http://x")),
            OutcomeStatus.INFRA_ERROR,
        ),
    ],
)
def test_only_what_the_policy_cannot_cause_becomes_null(error, status):
    outcome = run(raises(error))
    assert outcome.status is status
    assert type(error).__name__ in outcome.detail


def test_the_deadline_ends_a_rollout_as_it_stands():
    async def endless(task, policy):
        await asyncio.Event().wait()

    outcome = run(endless, seconds=0.05)
    assert outcome.status is OutcomeStatus.AGENT_LIMIT and "deadline" in outcome.detail


@pytest.mark.parametrize(
    "value",
    [None, 1.0, {"status": "won"}, Outcome(status="completed", artefacts={"x": sys})],
)
def test_what_is_no_outcome_is_the_environments_error(value):
    outcome = run(returns(value))
    assert outcome.status is OutcomeStatus.ENV_ERROR and outcome.detail


def test_a_plain_dict_will_do():
    assert run(returns({"status": "completed"})).status is OutcomeStatus.COMPLETED
