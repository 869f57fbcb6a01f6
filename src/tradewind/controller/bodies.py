"""Reading a request's JSON body, with a bound on its size."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel
from starlette.requests import Request

Body = TypeVar("Body", bound=BaseModel)


class TooLarge(Exception):
    """A request body over the limit."""


async def read_body(request: Request, model: type[Body], limit: int) -> Body:
    """The body as `model`; raises `TooLarge` over `limit` bytes, `ValidationError` if it is none.

    An empty body stands for an object without keys.
    """
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > limit:
            raise TooLarge(f"the body has more than {limit} bytes")
    return model.model_validate_json(bytes(body) or b"{}")
