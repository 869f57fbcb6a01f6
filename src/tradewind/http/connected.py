"""Whoever calls over HTTP and lets its connections go at the end."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import httpx


class Connected:
    """An async context manager around `_http`, which its subclass makes."""

    _http: httpx.AsyncClient

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.aclose()
