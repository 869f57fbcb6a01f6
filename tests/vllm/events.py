"""Events as vLLM streams them."""

from __future__ import annotations

from typing import Any


def event(
    ids: list[int], reason: str | None = None, spans: list[tuple[int, int, int]] | None = None
) -> dict[str, Any]:
    said = spans and [{"version": str(v), "start": a, "end": b} for v, a, b in spans]
    choice = {
        "token_ids": ids,
        "logprobs": {"content": [{"token_id": i, "logprob": -float(i)} for i in ids]},
        "finish_reason": reason,
        "weight_versions": said,
    }
    return {"choices": [choice]}
