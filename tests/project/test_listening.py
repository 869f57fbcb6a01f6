"""An answer of two writes (head, body) must not wait 40 ms for an acknowledgement in between.

Nagle's algorithm holds the second write back until the client acknowledges the first, and the
client's kernel delays that. asyncio turns it off for sockets that it makes, not for those it is
given: `lease_cycles_s` at 8 workers was 89 instead of several hundred.
"""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tradewind.http.listening import listen, listen_at
from tradewind.types import UserError

SOURCES = Path(__file__).parents[2] / "src" / "tradewind"


def test_a_kept_connection_answers_without_waiting_for_an_acknowledgement() -> None:
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_every_server_listens_in_this_way() -> None:
    own = [
        str(file.relative_to(SOURCES))
        for file in SOURCES.rglob("*.py")
        if "create_server(" in file.read_text() or "uvicorn.Config(" in file.read_text()
    ]
    tried = "rewards/sandbox/measure.py"  # what it serves to is a box that must not reach it
    assert sorted(own) == ["http/listening.py", tried]


@pytest.mark.parametrize(
    "host,says",
    [("192.0.2.1", "Cannot assign requested address"), ("no such host.invalid", "cannot listen")],
)
def test_an_address_that_cannot_be_had_is_a_sentence(host: str, says: str) -> None:
    with pytest.raises(UserError, match=says) as refused:
        listen(host, 0, what="the relay")
    assert "the relay cannot listen" in str(refused.value)


@pytest.mark.parametrize("address", ["9300", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:70000"])
def test_what_is_no_address_is_a_sentence(address: str) -> None:
    with pytest.raises(UserError, match="HOST:PORT"):
        listen_at(address, what="the endpoint", fix="give HOST:PORT")
