"""A product whose customers like answers that begin with a vowel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from tradewind.types import Outcome, OutcomeStatus


async def rollout(task: Mapping[str, Any], policy: Any) -> Outcome:
    """One call, one outcome."""
    async with httpx.AsyncClient(timeout=60) as client:
        answer = await client.post(
            f"{policy.base_url}/chat/completions",
            headers={"Authorization": f"Bearer {policy.api_key}"},
            json={
                "model": policy.model,
                "max_tokens": 8,
                "messages": [{"role": "user", "content": task["question"]}],
            },
        )
    if answer.status_code != 200:
        return Outcome(status=OutcomeStatus.INFRA_ERROR, detail=answer.text[:200])
    text = answer.json()["choices"][0]["message"]["content"]
    return Outcome(status=OutcomeStatus.COMPLETED, artefacts={"text": text})
