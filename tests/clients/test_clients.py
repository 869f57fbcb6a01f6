"""The openai and anthropic packages for Python and Node, against a real engine and a tiny model.

What a client saw, streamed or not, is what the ledger says was delivered, and the ledger's ids are
the engine's.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from phrases import Demonstration, call, imitate
from stand import Stand, standing

from tradewind.pool.engines.embedded.engine import EmbeddedEngine
from tradewind.types import Turn, TurnState

SCHEMA = {"type": "object", "properties": {"colour": {"type": "string"}}}
PAINT = {"name": "paint", "description": "Paints the wall.", "parameters": SCHEMA}
USER = {"role": "user", "content": "Paint the wall."}
HERE = Path(__file__).parent

Saw = list[dict[str, Any]]


def _shown(tools: bool) -> Demonstration:
    """One answer to imitate: a call if there is a tool, else a sentence."""
    function = {"name": "paint", "arguments": json.dumps({"colour": "red"})}
    made = {"id": "call_1", "type": "function", "function": function}
    turn = Turn(
        turn_id="t",
        rollout_id="r",
        index=0,
        parent=None,
        state=TurnState.DONE,
        prompt_ids=(),
        completion=None,
        temperature=1.0,
        messages=(USER,),
        tools=({"type": "function", "function": PAINT},) if tools else (),
        text="" if tools else "It is red.",
        tool_calls=(made,) if tools else (),
        started_at=0.0,
    )
    return Demonstration((turn,))


@pytest.fixture(scope="module")
def stand(tmp_path_factory) -> Iterator[Stand]:
    folder = tmp_path_factory.mktemp("clients")
    said = {call("paint", colour="red"), "It is ", "red."}
    shown = [_shown(False), _shown(True)]
    phrases = said.union(*(one.phrases() for one in shown))
    model = imitate(folder / "model", shown, phrases, steps=60)
    engine = EmbeddedEngine.open(model, threads=1, dtype="float32")
    with standing(folder, model, engine) as built:
        yield built


def python_openai(stand: Stand, key: str) -> Saw:
    saw: Saw = []

    def say(way: str, text: str | None, calls: Any, tokens: int) -> None:
        pairs = [[c.name, json.loads(c.arguments)] for c in calls]
        saw.append({"way": way, "text": text or "", "calls": pairs, "tokens": tokens})

    with openai.OpenAI(api_key=key, base_url=f"{stand.url}/v1", max_retries=0) as client:
        for tools in (openai.omit, [{"type": "function", "function": PAINT}]):
            body: Any = {"model": "policy", "messages": [USER], "tools": tools}
            whole = client.chat.completions.create(**body)
            said = whole.choices[0].message
            made = [made.function for made in said.tool_calls or []]
            say("chat", said.content, made, whole.usage.completion_tokens)
            options = {"stream_options": {"include_usage": True}}
            with client.chat.completions.stream(**body, **options) as stream:
                final = stream.get_final_completion()
            said = final.choices[0].message
            made = [made.function for made in said.tool_calls or []]
            say("chat", said.content, made, final.usage.completion_tokens)
        for tools in (openai.omit, [{"type": "function", **PAINT}]):
            body = {"model": "policy", "input": [USER], "tools": tools}
            response = client.responses.create(**body)
            made = [item for item in response.output if item.type == "function_call"]
            say("responses", response.output_text, made, response.usage.output_tokens)
            with client.responses.stream(**body) as stream:
                response = stream.get_final_response()
            made = [item for item in response.output if item.type == "function_call"]
            say("responses", response.output_text, made, response.usage.output_tokens)
    return saw


def python_anthropic(stand: Stand, key: str) -> Saw:
    saw: Saw = []

    def say(message: anthropic.types.Message) -> None:
        text = "".join(block.text for block in message.content if block.type == "text")
        calls = [[b.name, b.input] for b in message.content if b.type == "tool_use"]
        tokens = message.usage.output_tokens
        saw.append({"way": "messages", "text": text, "calls": calls, "tokens": tokens})

    tool = {"name": "paint", "description": PAINT["description"], "input_schema": SCHEMA}
    with anthropic.Anthropic(api_key=key, base_url=stand.url, max_retries=0) as client:
        for tools in (anthropic.omit, [tool]):
            body: Any = {"model": "policy", "max_tokens": 64, "messages": [USER], "tools": tools}
            say(client.messages.create(**body))
            with client.messages.stream(**body) as stream:
                say(stream.get_final_message())
    return saw


def node(script: str) -> Callable[[Stand, str], Saw]:
    def run(stand: Stand, key: str) -> Saw:
        prepared = os.environ.get("TRADEWIND_NODE")
        assert prepared, "TRADEWIND_NODE is not set: `make test` prepares Node and its packages"
        folder = Path(prepared)
        command = [str(folder / "bin" / "node"), str(folder / script), stand.url, key]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


CLIENTS = {
    "openai, Python": (python_openai, 8),
    "anthropic, Python": (python_anthropic, 4),
    "openai, Node": (node("openai.mjs"), 8),
    "anthropic, Node": (node("anthropic.mjs"), 4),
}


@pytest.mark.parametrize("name", CLIENTS)
def test_what_the_client_saw_is_what_was_recorded_of_the_engine(name, stand):
    use, calls = CLIENTS[name]
    lease = stand.lease()
    saw = use(stand, lease.model_key)
    turns = stand.turns(lease)
    assert len(saw) == len(turns) == calls
    for seen, turn in zip(saw, turns, strict=True):
        made = [call["function"] for call in turn.tool_calls]
        pairs = [[function["name"], json.loads(function["arguments"])] for function in made]
        recorded = {"way": turn.dialect, "text": turn.text, "calls": pairs}
        assert seen == {**recorded, "tokens": len(turn.completion.output_ids)}
        assert list(turn.completion.output_ids) == stand.engine.gave[turn.turn_id]
        assert turn.prompt_ids == stand.engine.asked[turn.turn_id]
    assert {len(seen["calls"]) for seen in saw[2:4]} == {1}, "the tiny model calls the tool"
