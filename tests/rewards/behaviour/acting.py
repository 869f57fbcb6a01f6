"""Episodes of agents that act, for tests: turns with ids that extend each other."""

from __future__ import annotations

import json
from typing import Any

from tradewind.types import Completion, Episode, Outcome, Task, TokenParts, Turn, VersionSpan

BASH = {"type": "function", "function": {"name": "bash", "parameters": {}}}


def call(number: int, tool: str = "bash", **arguments: Any) -> dict:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return {"id": f"c{number}", "type": "function", "function": function}


def turn(
    index: int,
    prompt: int,
    output: int,
    *,
    parts: TokenParts | None = None,
    calls: tuple[dict, ...] = (),
    **fields: Any,
) -> Turn:
    """`prompt` and `output` are lengths; prompts of one rollout are prefixes of each other."""
    done = Completion(
        output_ids=tuple(range(output)),
        logprobs=(-0.1,) * output,
        spans=(VersionSpan(version=0, count=output),),
        finish_reason="stop",
        pool="p",
    )
    given = {
        "turn_id": f"r-t{index}",
        "rollout_id": "r",
        "index": index,
        "parent": f"r-t{index - 1}" if index else None,
        "state": "done",
        "prompt_ids": tuple(range(prompt)),
        "completion": done,
        "parts": parts or TokenParts(message=output),
        "temperature": 1.0,
        "messages": ({"role": "user", "content": "do it"},),
        "tools": (BASH,),
        "text": "",
        "tool_calls": calls,
        "started_at": 0.0,
    }
    return Turn(**{**given, **fields})


def acting(
    *rounds: list[tuple[dict, str]], final: str = "done", tools: tuple[dict, ...] = (BASH,)
) -> Episode:
    """One turn per round, each with its calls and what they return, then a final answer.

    Each call is 10 sampled tokens, each result 20 prompt tokens, the final answer 5.
    """
    messages: list[dict] = [{"role": "user", "content": "do it"}]
    turns, prompt = [], 30
    for index, acts in enumerate([*rounds, []]):
        calls = tuple(given for given, _ in acts)
        sampled = 10 * len(acts) or 5
        parts = TokenParts(calls=sampled) if acts else TokenParts(message=sampled)
        said = {"messages": tuple(messages), "text": "" if acts else final, "tools": tools}
        turns.append(turn(index, prompt, sampled, parts=parts, calls=calls, **said))
        messages.append({"role": "assistant", "content": "", "tool_calls": list(calls)})
        messages += [
            {"role": "tool", "tool_call_id": given["id"], "content": result}
            for given, result in acts
        ]
        prompt += sampled + 20 * len(acts)
    return episode(*turns)


def episode(*turns: Turn, artefacts: dict | None = None) -> Episode:
    return Episode(
        rollout_id="r",
        task=Task(task_id="t", kind="k", split="train", input={}, reference={}),
        outcome=Outcome(status="completed", artefacts=artefacts or {}),
        turns=turns,
    )
