"""An answer of two writes (head, body) must not wait 40 ms for an acknowledgement in between.

Nagle's algorithm holds the second write back until the client acknowledges the first, and the
client's kernel delays that. asyncio turns it off for sockets that it makes, not for those it is
given: `lease_cycles_s` at 8 workers was 89 instead of several hundred.
"""

from __future__ import annotations

import socket

import pytest

from tradewind.controller import main as controller
from tradewind.gateway import main as gateway
from tradewind.pool import main as pool
from tradewind.relay import main as relay

LISTEN = {
    "controller": controller.listen,
    "gateway": gateway._listen,
    "pool": pool._listen,
    "relay": relay._listen,
}


@pytest.mark.parametrize("process", LISTEN)
def test_a_kept_connection_answers_without_waiting_for_an_acknowledgement(process: str) -> None:
    with LISTEN[process]("127.0.0.1", 0) as listener:
        listener.listen()
        with socket.create_connection(listener.getsockname()):
            accepted, _ = listener.accept()
            with accepted:
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
