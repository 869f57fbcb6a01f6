"""The pool process.

    bucket ──► receiver thread ── swap, proof ──► gate ◄──► engine thread
                   │                               ▲ │ proven chunks
                   │                        submit │ ▼
                   │                           HTTP server ◄──► gateway
                   ▼
               status ──► reporter thread ──► controller

    consumes   weight versions from the bucket; GenerateRequest from the gateway
    produces   GenerateChunk lines; PoolReport every second, with an attestation per version
    waits for  version 0 in the bucket (deadline `base_wait_s`)
    unblocked by  the trainer, which publishes it

A controller or a bucket that is out of reach is reported and does not stop serving. Killed at any
moment, the pool loses its running requests and nothing else: a restart reads the base folder and
goes to the newest version before it serves.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import uvicorn

from tradewind.http.listening import listen, quiet
from tradewind.pool.config import PoolConfig
from tradewind.pool.engine import Engine
from tradewind.pool.gate import Gate
from tradewind.pool.receiver import EngineLost, Receiver
from tradewind.pool.reporter import Reporter, controller_client
from tradewind.pool.server import PoolServer
from tradewind.pool.status import PoolStatus
from tradewind.types import TradewindError, UserError
from tradewind.weights.bucket import Source
from tradewind.weights.checkpoint import read_folder
from tradewind.weights.digest import state_id
from tradewind.weights.relayed import open_source
from tradewind.weights.signing import Trusting
from tradewind.weights.state import State

log = logging.getLogger(__name__)

GRACE_S = 2
"""For open connections after SIGTERM, in seconds."""


def serve(
    config: PoolConfig,
    workspace: Path | None = None,
    open_engine: Callable[[PoolConfig, Path], Engine] | None = None,
) -> None:
    """Runs until SIGTERM, SIGINT or the controller's word. The key comes from TRADEWIND_POOL_KEY.

    Raises UserError if this pool cannot serve this run, EngineLost if it must be started again.
    """
    key, bucket, folder = _essentials(config, workspace)
    base_state_id = state_id(read_folder(folder))
    with listen(
        config.host,
        config.port,
        what="the pool",
        fix="end the process that uses this port, or give --port 0 for a free one",
    ) as listener:
        gate = Gate((open_engine or ENGINES[config.engine])(config, folder))
        port = listener.getsockname()[1]
        url = config.url or f"http://{_host_of(config.host)}:{port}"
        status = PoolStatus(config.name, url, base_state_id)
        receiver = Receiver(gate, bucket, status, config, lambda: State.of(0, read_folder(folder)))
        _serve_with(gate, receiver, status, config, key, listener)


def open_embedded(config: PoolConfig, folder: Path) -> Engine:
    """The embedded engine; raises UserError if torch is missing or the model cannot be read."""
    try:
        from tradewind.pool.engines.embedded.engine import EmbeddedEngine
        from tradewind.pool.engines.embedded.scheduler import KvPolicy
    except ImportError as error:
        raise UserError(
            "the embedded engine needs torch", value=error.name, fix="pip install tradewind[train]"
        ) from error
    return EmbeddedEngine.open(
        folder,
        dtype=config.dtype,
        threads=config.threads,
        max_batch=config.max_batch,
        max_tokens=config.max_tokens,
        kv_policy=KvPolicy(config.kv_policy),
    )


def open_vllm(config: PoolConfig, folder: Path) -> Engine:
    """vLLM, in an environment of its own; raises UserError if it cannot serve the model."""
    from tradewind.pool.engines.vllm.engine import VllmEngine

    return VllmEngine.open(
        folder,
        read_folder(folder),
        config.vllm,
        dtype=config.dtype,
        max_batch=config.max_batch,
        recompute=config.kv_policy == "recompute",
    )


ENGINES = {"embedded": open_embedded, "vllm": open_vllm}
"""By `PoolConfig.engine`."""


class Server(uvicorn.Server):
    """Ends the engine before it waits for open streams, so that they end too."""

    def __init__(self, routes: PoolServer, engine: Gate) -> None:
        super().__init__(quiet(routes.app(), GRACE_S))
        self.stop = threading.Event()
        self._routes, self._engine = routes, engine

    def leave(self) -> None:
        """Ends the process soon; any thread may call it."""
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Streams end with an error chunk, then connections close."""
        self._routes.stopping = True
        self.stop.set()
        await asyncio.to_thread(self._engine.stop)
        await super().shutdown(sockets)


def main(argv: list[str] | None = None) -> int:
    """`python -m tradewind.pool`; 2 means a sentence on stderr, 1 that a restart may help."""
    options = vars(_parser().parse_args(argv))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        workspace = options.pop("workspace")
        serve(PoolConfig.with_options(options.pop("config"), options), workspace)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except TradewindError as error:
        print(f"the pool must be started again: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


def _serve_with(
    engine: Gate,
    receiver: Receiver,
    status: PoolStatus,
    config: PoolConfig,
    key: str,
    listener: socket.socket,
) -> None:
    """Three threads beside the engine's own: server (this one), receiver, reporter."""
    server = Server(PoolServer(engine, status, key), engine)
    log.info("pool %s listens on %s", config.name, status.url)
    fatal: list[TradewindError] = []
    threads = [_receiver_thread(receiver, server, fatal)]
    if config.controller is not None:
        client = controller_client(config.controller, key)
        reporter = Reporter(client, status, engine, on_stop=server.leave)
        threads.append(_thread("reporter", lambda: reporter.run(server.stop, config.report_s)))
    for thread in threads:
        thread.start()
    with contextlib.suppress(KeyboardInterrupt):  # raised again by uvicorn after its shutdown
        server.run(sockets=[listener])
    status.news.set()
    for thread in threads:
        thread.join(GRACE_S)
    if fatal:
        raise fatal[0]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tradewind pool",
        description="Decode for rollouts and users, and follow the weights",
        epilog="TRADEWIND_POOL_KEY in the environment is the key of the run's pools",
    )
    said = PoolConfig.explained()
    parser.add_argument("--config", type=Path, help="TOML or JSON file of one [[pools]] section")
    parser.add_argument("--workspace", type=Path, help="its model/ is the default of --model")
    parser.add_argument("--join", "--controller", dest="controller", help=said["controller"])
    for name in ("name", "engine", "bucket", "fallback", "run-id", "host", "url", "dtype"):
        parser.add_argument(f"--{name}", help=said[name.replace("-", "_")])
    for name in ("port", "threads", "max-batch", "max-tokens"):
        parser.add_argument(f"--{name}", type=int, help=said[name.replace("-", "_")])
    parser.add_argument("--model", type=Path, help=said["model"])
    return parser


def _essentials(config: PoolConfig, workspace: Path | None) -> tuple[str, Source, Path]:
    key = os.environ.get("TRADEWIND_POOL_KEY")
    if not key:
        raise UserError("the pool has no key", fix="set TRADEWIND_POOL_KEY in its environment")
    if config.bucket is None:
        raise UserError("the pool has no bucket", fix="give --bucket URL")
    folder = config.model or (workspace / "model" if workspace else None)
    if folder is None:
        raise UserError("the pool has no model", fix="give --model FOLDER, the run's base model")
    source = open_source(config.bucket, config.fallback)
    return key, Trusting(source, config.trust) if config.trust else source, folder


def _receiver_thread(
    receiver: Receiver, server: Server, fatal: list[TradewindError]
) -> threading.Thread:
    def run() -> None:
        try:
            receiver.run(server.stop)
        except TradewindError as error:
            if not server.stop.is_set():
                fatal.append(error)
        except Exception as error:  # boundary: no thread may die unseen
            log.exception("the receiver died")
            fatal.append(EngineLost(f"the receiver died: {type(error).__name__}: {error}"))
        finally:
            server.leave()

    return _thread("receiver", run)


def _thread(name: str, run: Callable[[], None]) -> threading.Thread:
    return threading.Thread(target=run, name=name, daemon=True)


def _host_of(host: str) -> str:
    if host in ("0.0.0.0", "::"):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host
