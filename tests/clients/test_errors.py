"""What goes wrong, as the openai and anthropic packages for Python and Node understand it.

Each raises its own class with the word that agents look for, and repeats only what may help.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import anthropic
import httpx
import openai
import pytest
from engines import Answering
from phrases import byte_model
from stand import Stand, standing, wait_until

from tradewind.pool.engine import OnChunk
from tradewind.render.renderer import Renderer
from tradewind.types import GenerateChunk, GenerateRequest, Outcome

HERE = Path(__file__).parent
LIMIT: dict[str, Any] = {"model": "m", "max_tokens": 64}
Saw = list[dict[str, Any]]


class Breaking(Answering):
    """Breaks off in the middle of its answer if it is asked to."""

    def submit(self, request: GenerateRequest, on_chunk: OnChunk) -> None:
        if "break" not in self._renderer.decode(request.prompt_ids):
            return super().submit(request, on_chunk)
        ids = self._renderer.encode("hel")
        on_chunk(GenerateChunk(ids=ids, logprobs=(-0.5,) * len(ids), version=0))
        on_chunk(GenerateChunk(ids=(), logprobs=(), version=0, error="out of memory"))
        return None


class Asked(NamedTuple):
    """Where a client turns to."""

    stand: Stand
    empty: Stand
    """A gateway without a pool."""
    key: str
    ended: str
    """Of a rollout that is over."""


@pytest.fixture(scope="module")
def stands(tmp_path_factory) -> Iterator[tuple[Stand, Stand]]:
    folder = tmp_path_factory.mktemp("errors")
    (folder / "empty").mkdir()
    model = byte_model(folder / "bytes", window=2000)

    def engine() -> Breaking:
        return Breaking(Renderer.open(model), lambda _: "hello")

    with (
        standing(folder, model, engine(), pool_attempts=1) as stand,
        standing(folder / "empty", model, engine(), admission_wait_s=0.0) as empty,
    ):
        empty.ledger.record_pool(empty.ledger.pools()[0], now=time.time() - 1e7)
        wait_until(lambda: httpx.get(f"{empty.url}/healthz").json() == {"pools": 0})
        yield stand, empty


@pytest.fixture
def asked(stands) -> Asked:
    stand, empty = stands
    over = stand.lease()
    stand.ledger.finish(over.rollout_id, Outcome(status="completed"), time.time())
    return Asked(stand, empty, stand.lease().model_key, over.model_key)


class Api(NamedTuple):
    """One of the Python packages, in one dialect."""

    client: Callable[[str, str, int], Any]
    ask: Callable[..., Any]
    code: Callable[[Any], str]


def _openai(url: str, key: str, retries: int = 0) -> openai.OpenAI:
    return openai.OpenAI(api_key=key, base_url=f"{url}/v1", max_retries=retries)


def _claude(url: str, key: str, retries: int = 0) -> anthropic.Anthropic:
    return anthropic.Anthropic(api_key=key, base_url=url, max_retries=retries)


def _user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


APIS = {
    "chat": Api(
        _openai,
        lambda c, text, **more: c.chat.completions.create(model="m", messages=_user(text), **more),
        lambda error: error.code,
    ),
    "responses": Api(
        _openai,
        lambda c, text, **more: c.responses.create(model="m", input=text, **more),
        lambda error: error.code,
    ),
    "messages": Api(
        _claude,
        lambda c, text, **more: c.messages.create(**LIMIT, messages=_user(text), **more),
        lambda error: error.body["error"]["type"],
    ),
}


def python(asked: Asked, empty_key: str) -> Saw:
    saw: Saw = []
    url = asked.stand.url
    for name, (client, ask, code) in APIS.items():
        cases = {
            "wrong key": (client(url, "wrong", 0), "hi", {}),
            "misspelt": (client(url, asked.key, 0), "hi", {"extra_body": {"temprature": 1}}),
            "too long": (client(url, asked.key, 0), "x" * 5000, {}),
            "ended": (client(url, asked.ended, 2), "hi", {}),
            "no pool": (client(asked.empty.url, empty_key, 0), "hi", {}),
        }
        for case, (opened, text, more) in cases.items():
            with opened, pytest.raises((openai.APIStatusError, anthropic.APIStatusError)) as caught:
                ask(opened, text, **more)
            kind, status = type(caught.value).__name__, caught.value.status_code
            found = {"api": name, "case": case, "status": status, "kind": kind}
            saw.append({**found, "code": code(caught.value)})
        with client(url, asked.key, 0) as opened:
            broken = _break(ask, opened)
        saw.append({"api": name, "case": "broken", "code": code(broken)})
    return saw


def _break(ask: Callable[..., Any], client: Any) -> Any:
    """What the package makes of an answer that breaks off."""
    last = None
    try:
        for event in ask(client, "break", stream=True):
            last = event
    except (openai.APIError, anthropic.APIError) as error:
        return error
    assert last.type == "response.failed", last
    return last.response.error


def node(asked: Asked, empty_key: str) -> Saw:
    prepared = os.environ.get("TRADEWIND_NODE")
    assert prepared, "TRADEWIND_NODE is not set: `make test` prepares Node and its packages"
    folder = Path(prepared)
    command = [str(folder / "bin" / "node"), str(folder / "errors.mjs"), asked.stand.url]
    command += [asked.empty.url, asked.key, asked.ended, empty_key]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


WORDS = {
    "wrong key": (401, "AuthenticationError", "invalid_api_key", "authentication_error"),
    "misspelt": (400, "BadRequestError", "unknown_parameter", "invalid_request_error"),
    "too long": (400, "BadRequestError", "context_length_exceeded", "invalid_request_error"),
    "ended": (409, "ConflictError", "rollout_ended", "conflict_error"),
    "no pool": (429, "RateLimitError", "no_pool", "rate_limit_error"),
}
BROKEN = {"chat": "answer_lost", "responses": "server_error", "messages": "overloaded_error"}


@pytest.mark.parametrize("use", [python, node], ids=["Python", "Node"])
def test_each_client_raises_its_own_error_with_the_word_that_agents_look_for(use, asked):
    refused = asked.stand.gateway.metrics.refused["rollout_ended"]
    saw = use(asked, asked.empty.lease().model_key)
    wanted = []
    for api in APIS:
        for case, (status, kind, code, claude_code) in WORDS.items():
            found = {"api": api, "case": case, "status": status, "kind": kind}
            wanted.append({**found, "code": claude_code if api == "messages" else code})
        wanted.append({"api": api, "case": "broken", "code": BROKEN[api]})
    assert saw == wanted
    again = asked.stand.gateway.metrics.refused["rollout_ended"] - refused
    assert again == len(APIS), "a rollout that is over is asked about once, whatever SDKs repeat"
