"""openai-agents as it comes from PyPI: a function tool, streamed over the Responses API or chat."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from serving import serve

set_tracing_disabled(True)


def play(rollout: dict[str, Any]) -> Any:
    return asyncio.run(_play(rollout))


async def _play(rollout: dict[str, Any]) -> Any:
    @function_tool
    def paint(colour: str) -> str:
        """Paints the wall."""
        (Path(rollout["folder"]) / "wall.txt").write_text(colour)
        return "painted"

    async with AsyncOpenAI(api_key=rollout["key"], base_url=rollout["base_url"] + "/v1") as client:
        kind = OpenAIResponsesModel
        if rollout["dialect"] == "chat":
            kind = OpenAIChatCompletionsModel
        agent = Agent(
            name="painter",
            instructions="You paint walls.",
            tools=[paint],
            model=kind("policy", client),
        )
        run = Runner.run_streamed(agent, rollout["task"], max_turns=4)
        async for _event in run.stream_events():
            pass
        return run.final_output


if __name__ == "__main__":
    serve(play)
