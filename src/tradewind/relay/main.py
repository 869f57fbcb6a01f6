"""The relay process.

    bucket ──► upstream, through the shelf ──► HTTP ◄── pools of the region
                   │                            ▲
                   └──► mirror thread ── merged deltas, on demand

    consumes   objects of the bucket, each once; requests of pools
    produces   the same objects; shortcuts that nobody published
    waits for  version 0 in the bucket, before it can make shortcuts
    unblocked by  the trainer, which publishes it

It writes nothing to the bucket. Killed at any moment it loses nothing but time: the cache is
checked object by object when it is used again.
"""

from __future__ import annotations

import argparse
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
from tradewind.relay.app import Relay
from tradewind.relay.config import RelayConfig
from tradewind.relay.mirror import Mirror
from tradewind.relay.shelf import Shelf
from tradewind.relay.upstream import Upstream
from tradewind.types.errors import TradewindError, UserError
from tradewind.weights.bucket import Bucket
from tradewind.weights.checkpoint import read_folder
from tradewind.weights.relayed import KEY_NAME
from tradewind.weights.state import State

log = logging.getLogger(__name__)

GRACE_S = 2
"""For answers in flight after SIGTERM, in seconds."""


class MirrorLost(TradewindError):
    """The mirror's thread died; only a new process helps."""


OnReady = Callable[[str, Callable[[], None]], None]
"""Is told the relay's URL, and what ends it."""


def serve(config: RelayConfig, on_ready: OnReady | None = None) -> None:
    """Runs until SIGTERM or SIGINT. The key comes from TRADEWIND_RELAY_KEY.

    Raises UserError if the relay cannot work: no key, no bucket, another model than the run's.
    """
    key = os.environ.get(KEY_NAME)
    if not key:
        raise UserError("the relay has no key", fix=f"set {KEY_NAME} in its environment")
    if config.bucket is None:
        raise UserError("the relay has no bucket", fix="give --bucket URL")
    shelf = Shelf.at(config.cache, config.cache_bytes)
    upstream = Upstream(Bucket.open(config.bucket), shelf, names_s=config.names_s)
    mirror = _mirror(config, upstream, shelf)
    with listen(
        config.host,
        config.port,
        what="the relay",
        fix="end the process that uses this port, or give --port 0 for a free one",
    ) as listener:
        host, port = listener.getsockname()[:2]
        log.info("the relay listens on http://%s:%d, before %s", host, port, config.bucket)
        server = uvicorn.Server(quiet(Relay(upstream, shelf, mirror, key).app(), GRACE_S))
        if on_ready is not None:
            on_ready(f"http://{host}:{port}", lambda: setattr(server, "should_exit", True))
        _serve_with(server, mirror, listener)


def main(argv: list[str] | None = None) -> int:
    """`python -m tradewind.relay`; 2 means a sentence on stderr, 1 that a restart may help."""
    options = vars(_parser().parse_args(argv))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        serve(RelayConfig.with_options(options.pop("config"), options))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except TradewindError as error:
        print(f"the relay must be started again: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


def _mirror(config: RelayConfig, upstream: Upstream, shelf: Shelf) -> Mirror | None:
    folder = config.model
    if folder is None:
        return None
    read_folder(folder)  # a folder that cannot be read is told at once
    return Mirror(upstream, shelf, config, lambda: State.of(0, read_folder(folder)))


def _serve_with(server: uvicorn.Server, mirror: Mirror | None, listener: socket.socket) -> None:
    """The server in this thread, the mirror in another."""
    ended = threading.Event()
    fatal: list[TradewindError] = []

    def follow() -> None:
        assert mirror is not None, "the thread is there for it"
        try:
            mirror.run(ended)
        except TradewindError as error:
            fatal.append(error)
        except Exception as error:  # boundary: no thread may die unseen
            log.exception("the mirror died")
            fatal.append(MirrorLost(f"the mirror died: {type(error).__name__}: {error}"))
        finally:
            server.should_exit = True

    thread = threading.Thread(target=follow, name="mirror", daemon=True)
    if mirror is not None:
        thread.start()
    with contextlib.suppress(KeyboardInterrupt):  # raised again by uvicorn after its shutdown
        server.run(sockets=[listener])
    ended.set()
    if mirror is not None:
        thread.join(GRACE_S)
    if fatal:
        raise fatal[0]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tradewind relay",
        description="The weight stream for the pools of a region",
        epilog=f"{KEY_NAME} in the environment is the key of its pools",
    )
    said = RelayConfig.explained()
    parser.add_argument("--config", type=Path, help="TOML or JSON file of RelayConfig's fields")
    for name in ("bucket", "run-id", "host"):
        parser.add_argument(f"--{name}", help=said[name.replace("-", "_")])
    for name in ("port", "threads", "cache-bytes"):
        parser.add_argument(f"--{name}", type=int, help=said[name.replace("-", "_")])
    parser.add_argument("--model", type=Path, help=said["model"])
    parser.add_argument("--cache", type=Path, help=said["cache"])
    return parser
