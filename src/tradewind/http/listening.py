"""Listening sockets, and how a server runs on one."""

from __future__ import annotations

import os
import socket
import sys

import uvicorn
from starlette.types import ASGIApp

from tradewind.types.errors import UserError

BACKLOG = 512
"""Connections that wait to be accepted; from `listen` on clients wait instead of failing."""
KEEP_ALIVE_S = 75
"""How long a server keeps an idle connection; longer than clients do, or these would write into one
that is just being closed."""
SWITCH_S = 0.0005
"""How long a thread that talks to the ledger may keep the interpreter from the event loop, which
gives it up at each send and receive; Python's default, ten times as long, is most of a request."""


def listen(
    host: str, port: int, *, what: str = "the server", fix: str = "give another host or port"
) -> socket.socket:
    """A listening socket; port 0 takes a free one.

    Raises `UserError`, which calls the server `what`, if the port is in use or the address is none
    of this machine's.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        code = error.errno or 0  # create_server's own text repeats the address
        reason = os.strerror(code) if code > 0 else error.strerror or error
        raise UserError(
            f"{what} cannot listen ({reason})", value=f"{host}:{port}", fix=fix
        ) from error
    # asyncio does so for sockets that it makes itself. Without it head and body of an answer wait
    # for each other's acknowledgement, 40 ms each time.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def listen_at(address: str, *, what: str, fix: str) -> socket.socket:
    """`listen` at `HOST:PORT`; raises `UserError` for what is no such address, too."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise UserError(f"{what} cannot listen (this is not HOST:PORT)", value=address, fix=fix)
    return listen(host, int(port), what=what, fix=fix)


def free_port(host: str, wanted: int, process: str) -> int:
    """A free TCP port on `host`, or `wanted` if it is not 0 and free, for `process` to listen on.

    Raises `UserError` if the wanted port is taken.
    """
    fix = f"end the process that uses this port, or set [{process}] port to 0 for any free one"
    with listen(host, wanted, what=f"the {process}", fix=fix) as listener:
        port: int = listener.getsockname()[1]
        return port


def quiet(app: ASGIApp, grace_s: int) -> uvicorn.Config:
    """Serve `app` without a log of requests; after SIGTERM open connections have `grace_s`."""
    return uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=grace_s,
        timeout_keep_alive=KEEP_ALIVE_S,
    )


def favour_the_event_loop() -> None:
    """For a process whose event loop answers requests while threads talk to the ledger."""
    sys.setswitchinterval(SWITCH_S)
