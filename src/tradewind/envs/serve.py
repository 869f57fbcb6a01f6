"""`tradewind env serve my_env.py`: the push app around a rollout function, as a process.

    bridge ── signed POST, GET ──► push_app ── rollout(task, policy) ──► agent and product

TLS is a reverse proxy's work. `TRADEWIND_PUSH_KEYS` (id:secret, several with commas) from the
environment.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from tradewind.envs.protocol import load_env
from tradewind.envs.push import push_app
from tradewind.envs.signature import parse_keys
from tradewind.http.listening import listen_at, quiet
from tradewind.types.errors import UserError

log = logging.getLogger("push")

KEYS_VARIABLE = "TRADEWIND_PUSH_KEYS"
GRACE_S = 2
"""For requests in flight after SIGTERM, in seconds."""


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; the exit status is 2 after a sentence about wrong input."""
    parser = argparse.ArgumentParser(prog="tradewind env serve", description=__doc__.split("\n")[0])
    parser.add_argument("env", help="path/to/env.py[:name] or package.module[:name]")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=9200, help="port; 0 takes a free one")
    parser.add_argument("--concurrency", type=int, default=64, help="rollouts at the same time")
    parser.add_argument("--state", type=Path, help="SQLite file that outlives a restart")
    args = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    try:
        keys = parse_keys(os.environ.pop(KEYS_VARIABLE, ""), KEYS_VARIABLE)
        env = load_env(args.env)
        app = push_app(env, keys, max_running=args.concurrency, state=args.state)
        address = f"{args.host}:{args.port}"
        listener = listen_at(address, what="the server", fix="give another --host or --port")
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(app, listener))
    return 0


async def _serve(app: Starlette, listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    log.info("ready at http://%s:%d", host, port)
    await uvicorn.Server(quiet(app, GRACE_S)).serve(sockets=[listener])


if __name__ == "__main__":
    sys.exit(main())
