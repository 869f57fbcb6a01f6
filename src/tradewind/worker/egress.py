"""The egress guard: a customer's URL is called only where it says, and never inside our network.

A host is resolved anew for each call, every address it has is checked, and the connection goes to
the address that was checked: a name that points elsewhere a moment later (DNS rebinding) changes
nothing. Certificates are still checked against the name.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from dataclasses import dataclass

import httpx

from tradewind.http.connected import Connected
from tradewind.types.errors import TradewindError, UserError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class EgressRefused(TradewindError):
    """A call that the guard does not let out, or an answer that it does not let in."""


@dataclass(frozen=True)
class Rules:
    """What is let through."""

    allow_private: bool = False
    """Whether private and loopback addresses may be called; link-local ones never are."""
    allow_http: bool = False
    """Whether TLS may be missing; to a loopback address that is allowed it always may."""
    max_bytes: int = 8_000_000
    """Of an answer."""
    max_seconds: float = 30.0
    """Of a call, from resolving to the last byte."""


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: httpx.Headers
    body: bytes


class Egress(Connected):
    """Calls below one base URL. Use as an async context manager."""

    def __init__(self, url: str, rules: Rules) -> None:
        """Raises `UserError` for a URL that no rules allow."""
        self.url, self._rules = _base(url), rules
        self._http = httpx.AsyncClient(trust_env=False, follow_redirects=False)

    async def call(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        """One call; `path` is below the base URL.

        Raises `EgressRefused` if the guard steps in, `httpx.TransportError` if there is no answer,
        or no whole one in time.
        """
        try:
            async with asyncio.timeout(self._rules.max_seconds):
                address = await self._checked_address()
                return await self._send(address, method, path, headers, body)
        except TimeoutError:
            raise httpx.ReadTimeout(
                f"no whole answer within {self._rules.max_seconds:g} s from {self.url.host}"
            ) from None

    async def _send(
        self, address: Address, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> Answer:
        pinned = self.url.copy_with(
            host=str(address), raw_path=(self.url.path.rstrip("/") + path).encode()
        )
        host = self.url.netloc.decode()
        request = self._http.build_request(
            method,
            pinned,
            headers={**headers, "host": host, "accept-encoding": "identity"},
            content=body,
            extensions={"sni_hostname": self.url.host},
        )
        answer = await self._http.send(request, stream=True)
        try:
            return Answer(answer.status_code, answer.headers, await self._read(answer))
        finally:
            await answer.aclose()

    async def _read(self, answer: httpx.Response) -> bytes:
        if answer.has_redirect_location:
            raise EgressRefused(f"{self.url.host} redirects, which is never followed")
        if answer.headers.get("content-encoding", "identity") != "identity":
            raise EgressRefused(f"{self.url.host} compresses its answer, which nobody asked for")
        body = bytearray()
        async for piece in answer.aiter_raw():
            body += piece
            if len(body) > self._rules.max_bytes:
                raise EgressRefused(
                    f"the answer of {self.url.host} has more than {self._rules.max_bytes} bytes"
                )
        return bytes(body)

    async def _checked_address(self) -> Address:
        """The first of the host's addresses, when all of them are allowed."""
        port = self.url.port or (443 if self.url.scheme == "https" else 80)
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                self.url.host, port, type=socket.SOCK_STREAM
            )
        except OSError as error:
            raise httpx.ConnectError(f"{self.url.host} cannot be resolved ({error})") from error
        addresses = [_plain(ipaddress.ip_address(entry[4][0])) for entry in found]
        for address in addresses:
            self._check(address)
        return addresses[0]

    def _check(self, address: Address) -> None:
        bad = address.is_link_local or address.is_multicast or address.is_unspecified
        if bad or not (address.is_global or self._rules.allow_private):
            raise EgressRefused(
                f"{self.url.host} is at {address}, inside a network that is not called; "
                "--allow-private lets private and loopback addresses through"
            )
        plain_loopback = address.is_loopback and self._rules.allow_private
        if self.url.scheme == "http" and not (self._rules.allow_http or plain_loopback):
            raise EgressRefused(f"{self.url} has no TLS; use https, or --allow-http")


def _base(url: str) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise UserError(
            f"this is no URL ({error})", value=url, fix="write https://host/path"
        ) from error
    if parsed.userinfo:
        raise UserError(
            "the URL holds credentials",
            value=f"{parsed.scheme}://...@{parsed.host}",
            fix="leave them out; calls are signed",
        )
    if parsed.scheme not in ("https", "http") or not parsed.host or parsed.query:
        raise UserError(
            "this is no base URL of a customer's server", value=url, fix="write https://host/path"
        )
    return parsed


def _plain(address: Address) -> Address:
    """An IPv4 address that comes in IPv6 clothes as what it is."""
    mapped = getattr(address, "ipv4_mapped", None)
    return address if mapped is None else mapped
