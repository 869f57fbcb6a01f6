"""What a customer's URL can make our side call, and what it cannot."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import httpx
import pytest

from tradewind.types import UserError
from tradewind.worker.egress import Egress, EgressRefused, Rules

LOCAL = Rules(allow_private=True)


def resolve_to(monkeypatch, *answers: list[str]):
    """Names resolve to these addresses, one list a call."""
    left = list(answers)

    async def getaddrinfo(self, host, port, **_):
        found = left.pop(0) if len(left) > 1 else left[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (a, port)) for a in found]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)


def call(url: str, rules: Rules | None = None):
    async def once():
        async with Egress(url, rules or Rules()) as egress:
            return await egress.call("GET", "/rollouts/x", {}, b"")

    return asyncio.run(once())


@pytest.mark.parametrize(
    "url,says",
    [
        ("ftp://host/x", "no base URL"),
        ("file:///etc/passwd", "no base URL"),
        ("https://", "no base URL"),
        ("https://user:hunter22@host/", "credentials"),
        ("https://host/x?next=http://other", "no base URL"),
        ("https://ho st:x/", "no URL"),
    ],
)
def test_a_url_that_no_rules_allow_is_a_sentence(url, says):
    with pytest.raises(UserError, match=says) as refused:
        Egress(url, Rules())
    assert "hunter22" not in str(refused.value)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.7",
        "192.168.1.1",
        "172.20.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "224.0.0.1",
        "::1",
        "fd00::1",
        "fe80::1",
        "::ffff:10.0.0.7",
    ],
)
def test_addresses_inside_our_network_are_not_called(monkeypatch, address):
    resolve_to(monkeypatch, [address])
    with pytest.raises(EgressRefused, match="not called"):
        call("https://innocent.example/")


def test_one_private_address_among_public_ones_is_enough(monkeypatch):
    resolve_to(monkeypatch, ["93.184.216.34", "10.0.0.7"])
    with pytest.raises(EgressRefused, match=r"10\.0\.0\.7"):
        call("https://innocent.example/")


@pytest.mark.parametrize("address", ["169.254.169.254", "0.0.0.0"])
def test_the_metadata_address_is_never_called(monkeypatch, address):
    resolve_to(monkeypatch, [address])
    with pytest.raises(EgressRefused):
        call("https://innocent.example/", Rules(allow_private=True, allow_http=True))


def test_http_needs_to_be_allowed_beyond_loopback(monkeypatch):
    resolve_to(monkeypatch, ["93.184.216.34"])
    with pytest.raises(EgressRefused, match="TLS"):
        call("http://innocent.example/", LOCAL)


class Server:
    """A raw HTTP server that answers with given bytes and keeps what it was asked."""

    def __init__(self, answer: bytes) -> None:
        self._answer, self.asked = answer, b""
        self._lines = []

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self._server.close()
        await self._server.wait_closed()
        await asyncio.gather(*self._lines)

    async def _serve(self, reader, writer):
        self._lines.append(asyncio.current_task())
        self.asked += await reader.readuntil(b"\r\n\r\n")
        writer.write(self._answer)
        if self._answer.endswith(b"HANG"):
            await reader.read()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def against(answer: bytes, rules: Rules = LOCAL):
    async def once():
        async with Server(answer) as server:
            async with Egress(f"http://localhost:{server.port}/agents/", rules) as egress:
                got = await egress.call("GET", "/rollouts/x", {"a": "b"}, b"")
            return got, server.asked

    return asyncio.run(once())


def test_an_allowed_call_goes_to_the_checked_address_with_the_hosts_name():
    got, asked = against(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi")
    assert (got.status, got.body) == (200, b"hi")
    assert asked.startswith(b"GET /agents/rollouts/x HTTP/1.1\r\n")
    assert b"host: localhost:" in asked.lower()


@pytest.mark.parametrize(
    "answer,says",
    [
        (b"HTTP/1.1 302 x\r\nlocation: http://10.0.0.7/\r\ncontent-length: 0\r\n\r\n", "redirects"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n" + b"x" * 5000, "more than 1000 bytes"),
        (b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\nxx", "compresses"),
    ],
)
def test_an_answer_that_would_hurt_is_refused(answer, says):
    with pytest.raises(EgressRefused, match=says):
        against(answer, Rules(allow_private=True, max_bytes=1000))


def test_an_answer_that_stops_half_way_is_none():
    half = b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nHANG"
    with pytest.raises(httpx.TransportError, match=r"no whole answer within 0\.3 s"):
        against(half, Rules(allow_private=True, max_seconds=0.3))


def test_a_name_that_points_inside_at_the_second_look_is_caught(monkeypatch):
    """DNS rebinding: each call checks the very address that it connects to."""
    resolve_to(monkeypatch, ["127.0.0.1"], ["10.0.0.7"])

    async def twice():
        async with (
            Server(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n") as server,
            Egress(f"http://innocent.example:{server.port}/", LOCAL) as egress,
        ):
            assert (await egress.call("GET", "/", {}, b"")).status == 200
            egress._rules = Rules(allow_http=True)
            with pytest.raises(EgressRefused):
                await egress.call("GET", "/", {}, b"")

    asyncio.run(twice())


def test_proxies_of_the_environment_are_not_used(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    assert against(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")[0].status == 200


def test_a_host_that_is_down_is_a_transport_error():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(httpx.TransportError):
        call(f"http://127.0.0.1:{port}/", LOCAL)
