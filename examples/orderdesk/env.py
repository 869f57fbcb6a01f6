"""What Tradewind calls: one rollout is one question put to the order desk's agent.

The worker hands over the task's input and a policy (a base URL, a key, a model name); the outcome
is data for the grader, never a verdict.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from openai import AsyncOpenAI

from orderdesk.agent import work_on
from tradewind.types import Outcome, OutcomeStatus

DATABASE_VARIABLE = "ORDERDESK_DB"


class Policy(Protocol):
    """Where the model is; the agent needs nothing else."""

    @property
    def base_url(self) -> str:
        """An OpenAI-compatible endpoint, `/v1` included."""

    @property
    def api_key(self) -> str:
        """The key of this rollout."""

    @property
    def model(self) -> str:
        """The name to ask for."""


async def rollout(task: Mapping[str, Any], policy: Policy) -> Outcome:
    """Put `task["question"]` to the agent and report what it did."""
    database = database_path()
    if not database.exists():
        return Outcome(status=OutcomeStatus.ENV_ERROR, detail=f"no order desk at {database}")
    # No retries: a call that is sent twice would be two turns of one conversation. What the
    # endpoint refuses goes up to the worker, which knows whose fault it is.
    async with AsyncOpenAI(
        base_url=policy.base_url, api_key=policy.api_key, max_retries=0
    ) as client:
        work = await work_on(str(task["question"]), database, client, policy.model)
    return Outcome(
        status=OutcomeStatus.COMPLETED,
        artefacts={"sql": work.sql, "rows": work.rows, "turns": work.turns},
    )


def database_path() -> Path:
    """The product's database: `$ORDERDESK_DB`, or `orderdesk.sqlite` in the working folder."""
    return Path(os.environ.get(DATABASE_VARIABLE, "orderdesk.sqlite"))
