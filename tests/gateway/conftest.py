"""A gateway over real HTTP: real ledger, real clients, and pools that do what a script says."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tradewind.gateway.app import create_app
from tradewind.gateway.config import GatewayConfig
from tradewind.gateway.gateway import Gateway
from tradewind.ledger.ledger import Ledger
from tradewind.ledger.rollouts import LeasedRollout, LeaseTerms
from tradewind.render.renderer import Renderer
from tradewind.types import GenerateRequest, PoolReport, Task, Turn, WeightVersion

POOL_KEY, USER_KEY = "pool-key", "user-key"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    """A folder with a byte tokenizer (one id a byte) and a ChatML template."""
    folder = tmp_path_factory.mktemp("model")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(CHATML)
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 400}))
    return folder


HERMES = """\
{%- if tools %}
    {{- '<|im_start|>system\\n# Tools' }}
    {%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content }}
    {%- for call in message.tool_calls or [] %}
        {{- '<tool_call>' }}{{- {'name': call.function.name, 'arguments': call.function.arguments}
            | tojson }}{{- '</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""


@pytest.fixture(scope="session")
def tool_model(model, tmp_path_factory) -> Path:
    """The same bytes, a template that knows tools, and room for their descriptions."""
    folder = tmp_path_factory.mktemp("tools")
    shutil.copytree(model, folder, dirs_exist_ok=True)
    (folder / "chat_template.jinja").write_text(HERMES)
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 4000}))
    return folder


@dataclass
class Reply:
    """What a pool does with one request."""

    text: str = "hello"
    ends: bool = True
    """Sends the end mark after the text."""
    die_after: int | None = None
    """Drops the connection after so many ids."""
    stall_after: int | None = None
    """Waits after so many ids until the test calls `release`."""
    swap_after: int | None = None
    """One version more from this id on."""
    version: int | None = None
    logprobs: Callable[[int], list[float]] = lambda n: [-0.5] * n
    finish: str | None = None
    error: str | None = None
    status: int = 200
    drop: tuple[int, ...] = ()
    """Positions of ids of the text that are left out."""
    alive_s: float = 0.0
    """Says for so long that it lives, before it says anything else."""
    silent_end: bool = False
    """Dies between the last id and the last line."""


class FakePool:
    """The token route, one id a line."""

    def __init__(self, name: str) -> None:
        self.name, self.url = name, ""
        self.reset()

    def reset(self) -> None:
        self.renderer: Renderer | None = None
        self.version = 0
        self.script: deque[Reply] = deque()
        self.requests: list[GenerateRequest] = []
        self.peers: set[Any] = set()
        self.cancelled: list[str] = []
        self.dropped: list[str] = []
        self.stalled = threading.Event()
        self.on_request: Callable[[GenerateRequest], None] = lambda request: None
        self._gate = threading.Event()

    def release(self) -> None:
        self._gate.set()

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/generate", self._generate, methods=["POST"]),
                Route("/v1/cancel/{request_id}", self._cancel, methods=["POST"]),
            ]
        )

    async def _cancel(self, request: Request) -> Response:
        self.cancelled.append(request.path_params["request_id"])
        return Response()

    async def _generate(self, request: Request) -> Response:
        if request.headers["authorization"] != f"Bearer {POOL_KEY}":
            return Response("wrong key", 401)
        asked = GenerateRequest.model_validate_json(await request.body())
        self.requests.append(asked)
        self.peers.add(request.client)
        await asyncio.to_thread(self.on_request, asked)
        reply = self.script.popleft() if self.script else Reply()
        if reply.status != 200:
            return Response("no", reply.status)
        return StreamingResponse(self._lines(asked, reply), media_type="application/x-ndjson")

    async def _lines(self, asked: GenerateRequest, reply: Reply):
        assert self.renderer is not None
        if reply.error:
            yield _line([], [], self.version, error=reply.error)
            return
        until = time.monotonic() + reply.alive_s
        while time.monotonic() < until:
            yield _line([], [], self.version)
            await asyncio.sleep(0.05)
        ids = list(self.renderer.encode(reply.text)) + ([258] if reply.ends else [])
        ids = [token for position, token in enumerate(ids) if position not in reply.drop]
        full, ids = len(ids), ids[: asked.max_tokens]
        version = self.version if reply.version is None else reply.version
        for position, token in enumerate(ids):
            if position == reply.die_after:
                raise ConnectionAbortedError
            if position == reply.stall_after:
                await self._stall(asked)
            if position == reply.swap_after:
                version += 1
            last = position == len(ids) - 1 and not reply.silent_end
            finish = reply.finish or ("stop" if reply.ends and len(ids) == full else "length")
            yield _line([token], reply.logprobs(1), version, finish if last else None)
        if reply.silent_end:
            raise ConnectionAbortedError

    async def _stall(self, asked: GenerateRequest) -> None:
        self.stalled.set()
        try:
            while not self._gate.is_set():
                await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            self.dropped.append(asked.request_id)
            raise


def _line(ids, logprobs, version, finish=None, error=None) -> str:
    chunk = {"ids": ids, "logprobs": logprobs, "version": version}
    return json.dumps({**chunk, "finish_reason": finish, "error": error}) + "\n"


class Servers:
    """One thread, one event loop, any number of HTTP servers on loopback."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(30)

    def start(self, app: Starlette) -> tuple[str, Callable[[], None]]:
        listener = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(
            uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1)
        )
        serving = asyncio.run_coroutine_threadsafe(server.serve(sockets=[listener]), self.loop)

        def stop() -> None:
            server.should_exit = True
            serving.result(30)

        wait_until(lambda: server.started or serving.done())
        return f"http://127.0.0.1:{listener.getsockname()[1]}", stop

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()


def wait_until(condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Polls until true; a deadline, not a timing assertion."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.002)
    return value


@dataclass
class World:
    """What a test plays with."""

    servers: Servers
    ledger: Ledger
    folder: Path
    model: Path
    paris: FakePool
    oregon: FakePool
    openai: openai.OpenAI
    claude: anthropic.Anthropic
    reply: type[Reply] = Reply
    url: str = ""
    gateway: Gateway | None = None
    _stop: Callable[[], None] | None = None

    @staticmethod
    def wait_until(condition: Callable[[], Any]) -> Any:
        return wait_until(condition)

    def start(self, **config: Any) -> None:
        fast = {"pool_poll_s": 0.005, "pool_alive_s": 600.0, "pool_cooloff_s": 0.05}
        given = {"orphan_grace_s": 0.05, "admission_wait_s": 0.2, "eval_wait_s": 0.5, **fast}
        settings = GatewayConfig(**{**given, "max_tokens": 64, **config})
        self.gateway = Gateway(
            settings,
            self.ledger,
            Renderer.open(self.model),
            pool_key=POOL_KEY,
            user_key=USER_KEY,
        )
        self.url, self._stop = self.servers.start(create_app(self.gateway))

    def stop(self) -> None:
        if self._stop is not None:
            self._stop()
            self._stop = None

    def report(self, pool: FakePool, **changes: Any) -> None:
        fields = {"base_state_id": "b3:0", "state": "serving", "max_batch": 8, "running": 0}
        fields |= {"waiting": 0, "tokens_per_s": 0.0, "dtype": "float32", "at": time.time()}
        fields |= {"pool": pool.name, "url": pool.url, "version": pool.version, **changes}
        self.ledger.record_pool(PoolReport(**fields))

    def lease(self, served=(), **terms: Any) -> LeasedRollout:
        terms = LeaseTerms(ttl_s=600.0, deadline_s=600.0, max_running=1000, **terms)
        lease = self.ledger.lease_next("w", time.time(), terms, served)
        assert lease is not None
        return lease

    def eval_lease(self, version: int) -> LeasedRollout:
        self.ledger.request_eval(f"v{version}", version)
        self.ledger.open_eval_groups()
        return self.lease(served=[version])

    def client(self, key: str = USER_KEY, **options: Any) -> openai.OpenAI:
        options = {"max_retries": 0, "timeout": 20.0, **options}
        return self.openai.with_options(api_key=key, base_url=f"{self.url}/v1", **options)

    def ask(self, key: str, *texts: str, **options: Any) -> Any:
        """One call; texts are user, assistant, user, ..."""
        return self.client(key).chat.completions.create(
            model="any", messages=chat(*texts), **options
        )

    def anthropic(self, key: str = USER_KEY, **options: Any) -> anthropic.Anthropic:
        options = {"max_retries": 0, "timeout": 20.0, **options}
        return self.claude.with_options(api_key=key, base_url=self.url, **options)

    def turns(self, lease: LeasedRollout) -> list[Turn]:
        return self.ledger.turns(lease.rollout_id)

    def close(self) -> None:
        for pool in (self.paris, self.oregon):
            pool.release()
        self.stop()
        self.ledger.close()


def chat(*texts: str) -> list[dict[str, str]]:
    roles = ("user", "assistant")
    return [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    servers = Servers()
    yield servers
    servers.close()


@pytest.fixture(scope="session")
def pools(servers) -> Iterator[list[FakePool]]:
    pools = [FakePool("paris"), FakePool("oregon")]
    stops = []
    for pool in pools:
        pool.url, stop = servers.start(pool.app())
        stops.append(stop)
    yield pools
    for stop in stops:
        stop()


@pytest.fixture(scope="session")
def sdk() -> Iterator[openai.OpenAI]:
    """One connection pool for all tests; making one takes longer than most tests."""
    with openai.OpenAI(api_key="none", base_url="http://127.0.0.1") as client:
        yield client


@pytest.fixture(scope="session")
def claude_sdk() -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(api_key="none", base_url="http://127.0.0.1") as client:
        yield client


def task(number: int, split: str) -> Task:
    return Task(task_id=f"{split}-{number}", kind="k", split=split, input={}, reference={})


@pytest.fixture
def bare_world(servers, pools, model, sdk, claude_sdk, tmp_path) -> Iterator[World]:
    """Ledger, one open group of eight, no gateway yet; paris has reported, oregon has not."""
    for pool in pools:
        pool.reset()
        pool.renderer = Renderer.open(model)
    ledger = Ledger.open(tmp_path / "ledger.sqlite")
    ledger.create_run({"run_id": "test", "seed": 7})
    ledger.add_tasks([task(i, split) for i in range(4) for split in ("train", "heldout")])
    ledger.commit_version(
        WeightVersion(
            version=0,
            state_id="b3:0",
            parent_state_id=None,
            manifest="m",
            stage="base",
            bytes_shipped=1,
            bytes_full=1,
        )
    )
    ledger.open_training_group(8)
    world = World(servers, ledger, tmp_path, model, *pools, openai=sdk, claude=claude_sdk)
    world.report(world.paris)
    yield world
    world.close()


@pytest.fixture
def tool_world(bare_world, tool_model) -> World:
    """`bare_world` with a model that knows tools, and a gateway of short waits."""
    bare_world.model = tool_model
    bare_world.start(max_tokens=512)
    return bare_world


@pytest.fixture
def world(bare_world) -> World:
    """`bare_world` with a gateway of short waits."""
    bare_world.start()
    return bare_world
