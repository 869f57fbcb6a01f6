"""The order desk's agent, as its owners would write it for any OpenAI-compatible endpoint.

    question --> model --> ```sql query``` --> database --> rows: that is the answer
                   ^                              |
                   +------- the error ------------+   (at most MAX_TURNS queries)

It does not know that it is being trained: a base URL and a key are all it gets.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from pathlib import Path

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from orderdesk.product import Answer, query

SYSTEM = "Answer with one ```sql query."
MAX_TURNS = 2
MAX_NEW_TOKENS = 56

_FENCED = re.compile(r"```sql\s(.*?)```", re.DOTALL)
_BARE = re.compile(r"\s*(select\b[^;`]*)(?:;|```|$)", re.DOTALL | re.IGNORECASE)


@dataclass
class Work:
    """What the agent did about one question."""

    question: str
    sql: str | None = None
    """The last query that ran without an error, if any."""
    rows: list[list[object]] | None = None
    turns: int = 0
    messages: list[ChatCompletionMessageParam] = field(default_factory=list)


def opening(question: str) -> list[ChatCompletionMessageParam]:
    """The messages every conversation starts with."""
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]


def query_in(reply: str) -> str | None:
    """The first complete ```sql fence of a reply, or the query that it begins with, or None."""
    found = _FENCED.search(reply) or _BARE.match(reply)
    return found.group(1).strip() or None if found else None


def feedback_on(answer: Answer) -> str | None:
    """What to tell the model about its query; None when the rows are an answer."""
    if answer.error is not None:
        return f"Error: {answer.error}"
    return None if answer.rows else "No rows."


async def work_on(question: str, database: Path, client: AsyncOpenAI, model: str) -> Work:
    """Answer one question; whatever the model says, this returns what came of it."""
    work = Work(question, messages=opening(question))
    while work.turns < MAX_TURNS:
        reply = await _ask(client, model, work.messages)
        work.turns += 1
        work.messages.append({"role": "assistant", "content": reply})
        sql = query_in(reply)
        if sql is None:
            return work
        answer = await asyncio.to_thread(query, database, sql)
        if answer.rows is not None:
            work.sql, work.rows = sql, answer.rows
        feedback = feedback_on(answer)
        if feedback is None:
            return work
        work.messages.append({"role": "user", "content": feedback})
    return work


async def _ask(client: AsyncOpenAI, model: str, messages: list[ChatCompletionMessageParam]) -> str:
    completion = await client.chat.completions.create(
        model=model, messages=messages, max_tokens=MAX_NEW_TOKENS
    )
    return completion.choices[0].message.content or ""
