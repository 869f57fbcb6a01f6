"""Reading a request: its body with a bound on its size, and the key that it bears."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel
from starlette.requests import Request

Body = TypeVar("Body", bound=BaseModel)


class TooLarge(Exception):
    """A request body over the limit."""


async def read_bytes(request: Request, limit: int) -> bytes:
    """The body; raises `TooLarge` as soon as there are more than `limit` bytes of it."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > limit:
            raise TooLarge(f"the body has more than {limit} bytes")
    return bytes(body)


async def read_body(request: Request, model: type[Body], limit: int) -> Body:
    """The body as `model`; raises `TooLarge` over `limit` bytes, `ValidationError` if it is none.

    An empty body stands for an object without keys.
    """
    return model.model_validate_json(await read_bytes(request, limit) or b"{}")


def bearer(headers: Mapping[str, str]) -> str:
    """The key in `Authorization: Bearer ...`, or an empty text."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def bears(headers: Mapping[str, str], key: str) -> bool:
    """Whether a request bears `key`; takes as long for every wrong one."""
    return hmac.compare_digest(bearer(headers).encode(), key.encode())
