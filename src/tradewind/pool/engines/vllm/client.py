"""vLLM's HTTP routes, over its socket. Used in one event loop."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx

from tradewind.types import TradewindError

Answer = dict[str, Any]

CONNECT_S = 5.0


class VllmFailed(TradewindError):
    """vLLM refused a call, broke off, or did not answer in time."""


class VllmClient:
    """Every failure is a VllmFailed with a sentence."""

    def __init__(self, socket: Path, key: str, call_s: float) -> None:
        self._http = httpx.AsyncClient(
            # vLLM closes a connection after an error, and one that is used again may be such a one.
            transport=httpx.AsyncHTTPTransport(
                uds=str(socket),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            ),
            base_url="http://vllm",
            headers={"Authorization": f"Bearer {key}"},
            timeout=httpx.Timeout(call_s, connect=CONNECT_S),
        )

    async def well(self) -> bool:
        """Whether vLLM says that it can serve; raises VllmFailed if it cannot be reached."""
        try:
            return (await self._http.get("/health", timeout=CONNECT_S)).is_success
        except httpx.TransportError as error:
            raise VllmFailed(f"vLLM does not answer ({type(error).__name__})") from error

    async def post(self, path: str, body: Mapping[str, Any] | None = None, **query: str) -> Answer:
        """One call; the answer is a JSON object."""
        try:
            response = await self._http.post(path, json=body, params=query)
        except httpx.HTTPError as error:
            raise VllmFailed(f"vLLM broke off {path} ({type(error).__name__})") from error
        if not response.is_success:
            raise VllmFailed(f"vLLM refused {path} ({response.status_code}): {_said(response)}")
        return _object(response.text) if response.content else {}

    async def ask_worker(self, method: str, **arguments: str) -> list[Answer]:
        """What every worker process answers to one of the plugin's methods."""
        body = {"method": method, "kwargs": arguments}
        answers: list[Answer] = (await self.post("/collective_rpc", body))["results"]
        return answers

    async def stream(self, body: Mapping[str, Any]) -> AsyncIterator[Answer]:
        """The events of one generation. There is no limit between two of them: a request may wait
        for others, and a dead vLLM closes the connection.
        """
        timeout = httpx.Timeout(None, connect=CONNECT_S)
        try:
            async with self._http.stream(
                "POST", "/inference/v1/generate", json={**body, "stream": True}, timeout=timeout
            ) as response:
                if not response.is_success:
                    await response.aread()
                    raise VllmFailed(f"vLLM refused the request: {_said(response)}")
                async for line in response.aiter_lines():
                    if line.startswith("data: {"):
                        yield _event(line[6:])
        except httpx.HTTPError as error:
            raise VllmFailed(f"vLLM broke off a request ({type(error).__name__})") from error

    async def close(self) -> None:
        """Closes all connections."""
        await self._http.aclose()


def _object(text: str) -> Answer:
    """A JSON object; raises VllmFailed for anything else, such as one that was cut off."""
    try:
        read = json.loads(text)
    except ValueError:
        read = None
    if not isinstance(read, dict):
        raise VllmFailed(f"vLLM answers with something else than an object: {text[:100]!r}")
    return read


def _event(line: str) -> Answer:
    event = _object(line)
    if (error := event.get("error")) is not None:
        raise VllmFailed(f"vLLM: {error.get('message', error)}")
    return event


def _said(response: httpx.Response) -> str:
    try:
        error = response.json()["error"]
        return str(error.get("message", error) if isinstance(error, dict) else error)[:500]
    except (ValueError, KeyError, TypeError, AttributeError):
        return response.text[:500]
