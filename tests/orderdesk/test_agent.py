"""The agent against a stand-in endpoint: what it sends, and that no reply makes it raise."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from orderdesk import agent
from orderdesk.agent import Work, work_on
from orderdesk.env import rollout
from orderdesk.users import CHATS, Chat, chats
from tradewind.envs.play import classify
from tradewind.types import Outcome, OutcomeStatus

GOOD = "```sql\nselect count(*) from products\n```"


def _work(endpoint: Any, database: Path, *replies: str) -> Work:
    endpoint.replies[:] = replies

    async def go() -> Work:
        async with AsyncOpenAI(base_url=endpoint.base_url, api_key="key") as client:
            return await work_on("How many products?", database, client, "policy")

    return asyncio.run(go())


def test_a_query_that_gives_rows_is_the_answer(endpoint: Any, desk: Any) -> None:
    work = _work(endpoint, desk.database, f"Here it is:\n{GOOD}")
    assert (work.sql, work.rows, work.turns) == ("select count(*) from products", [[60]], 1)
    assert endpoint.requests[0]["messages"] == agent.opening("How many products?")
    assert endpoint.requests[0]["max_tokens"] == agent.MAX_NEW_TOKENS


@pytest.mark.parametrize(
    ("first", "feedback"),
    [
        ("```sql\nselect nought\n```", "Error: no such column: nought"),
        ("```sql\nselect title from products where price < 0\n```", "No rows."),
    ],
)
def test_an_error_is_shown_and_the_conversation_only_grows(
    endpoint: Any, desk: Any, first: str, feedback: str
) -> None:
    work = _work(endpoint, desk.database, first, GOOD)
    before, after = (request["messages"] for request in endpoint.requests)
    assert work.rows == [[60]]
    assert after[: len(before)] == before
    assert after[len(before) :] == [
        {"role": "assistant", "content": first},
        {"role": "user", "content": feedback},
    ]


def test_it_gives_up_after_its_turns(endpoint: Any, desk: Any) -> None:
    work = _work(endpoint, desk.database, "```sql\nselect nought\n```")
    assert (work.sql, work.rows, work.turns) == (None, None, agent.MAX_TURNS)


@pytest.mark.parametrize(
    ("reply", "sql"),
    [
        ("Here:\n```sql\nselect 1\n```", "select 1"),
        ("select name from customers;", "select name from customers"),
        ("SELECT 1\n```\nand more", "SELECT 1"),
        ("I would select a table; which one?", None),
        ("```sql\nselect 1", None),
        ("selection", None),
    ],
)
def test_a_query_is_taken_fenced_or_bare(reply: str, sql: str | None) -> None:
    assert agent.query_in(reply) == sql


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "Sixty, I think.",
        "```sql\n```",
        "```sql\nselect count(*)",
        "```\nselect 1\n```",
        "\0```",
    ],
)
def test_a_reply_without_a_query_ends_without_an_answer(
    endpoint: Any, desk: Any, reply: str
) -> None:
    work = _work(endpoint, desk.database, reply)
    assert (work.sql, work.rows, work.turns) == (None, None, 1)


def _rollout(endpoint: Any) -> Outcome:
    return asyncio.run(rollout({"task_id": "t", "question": "How many products?"}, endpoint))


def test_a_rollout_reports_data_and_no_verdict(
    endpoint: Any, desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORDERDESK_DB", str(desk.database))
    endpoint.replies[:] = [GOOD]
    outcome = _rollout(endpoint)
    assert outcome.status is OutcomeStatus.COMPLETED
    assert outcome.artefacts == {
        "sql": "select count(*) from products",
        "rows": [[60]],
        "turns": 1,
    }


def test_a_missing_product_and_a_failing_endpoint_are_not_the_policys_fault(
    endpoint: Any, desk: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.replies[:] = [GOOD]
    monkeypatch.setenv("ORDERDESK_DB", str(tmp_path / "none.sqlite"))
    assert _rollout(endpoint).status is OutcomeStatus.ENV_ERROR
    monkeypatch.setenv("ORDERDESK_DB", str(desk.database))
    endpoint.status = 503
    with pytest.raises(openai.InternalServerError) as failure:
        _rollout(endpoint)
    assert classify(failure.value, endpoint.base_url) is OutcomeStatus.INFRA_ERROR
    assert len(endpoint.requests) == 1, "a retried call would be a turn of its own"


def _chats(endpoint: Any, per_second: float, seconds: float) -> list[Chat]:
    async def go() -> list[Chat]:
        async with AsyncOpenAI(base_url=endpoint.base_url, api_key="key", max_retries=0) as client:
            trickle = chats(client, "policy", per_second=per_second, seconds=seconds)
            return [chat async for chat in trickle]

    return asyncio.run(go())


def test_users_feel_the_first_token_and_the_whole(endpoint: Any) -> None:
    endpoint.replies[:] = ["We sell tea."]
    done = _chats(endpoint, per_second=50, seconds=0.2)
    assert len(done) == 10
    assert {chat.question for chat in done} == set(CHATS)
    for chat in done:
        assert chat.ttft_seconds is not None
        assert 0 < chat.ttft_seconds <= chat.total_seconds
        assert (chat.characters, chat.error) == (10, None)


def test_a_user_who_is_turned_away_is_recorded(endpoint: Any) -> None:
    endpoint.replies[:] = ["no"]
    endpoint.status = 503
    (chat,) = _chats(endpoint, per_second=50, seconds=0.02)
    assert chat.ttft_seconds is None
    assert chat.error is not None


def test_a_rate_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="give a rate above 0"):
        asyncio.run(anext(aiter(chats(None, "m", per_second=0, seconds=1))))  # type: ignore[arg-type]
