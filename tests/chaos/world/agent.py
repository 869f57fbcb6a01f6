"""An agent that calls the model once or twice; what counts is how its first answer begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from tradewind.types import Outcome, OutcomeStatus


async def rollout(task: Mapping[str, Any], policy: Any) -> Outcome:
    """Two calls, the second extends the first."""
    return await calls(task, policy, 2)


async def once(task: Mapping[str, Any], policy: Any) -> Outcome:
    """One call."""
    return await calls(task, policy, 1)


async def calls(task: Mapping[str, Any], policy: Any, number: int) -> Outcome:
    """So many calls, each extends the one before."""
    messages = [{"role": "user", "content": task["question"]}]
    said = []
    async with httpx.AsyncClient(timeout=20, verify=False) as client:  # reads no certificates
        for _ in range(number):
            answer = await client.post(
                f"{policy.base_url}/chat/completions",
                headers={"Authorization": f"Bearer {policy.api_key}"},
                json={"model": policy.model, "max_tokens": 6, "messages": messages},
            )
            if answer.status_code != 200:
                return Outcome(status=OutcomeStatus.INFRA_ERROR, detail=answer.text[:200])
            said.append(answer.json()["choices"][0]["message"]["content"] or "")
            messages += [
                {"role": "assistant", "content": said[-1]},
                {"role": "user", "content": "and?"},
            ]
    return Outcome(status=OutcomeStatus.COMPLETED, artefacts={"text": said[0]})
