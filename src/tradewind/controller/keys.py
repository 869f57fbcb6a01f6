"""Who may call what: three keys of processes, and a result key per rollout."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import Request

from tradewind.http.requests import bears
from tradewind.types.errors import TradewindError, UserError


class Unauthorized(TradewindError):
    """A missing or wrong key; the message says which one is expected."""


@dataclass(frozen=True)
class Keys:
    """Keys of the processes that call the controller."""

    worker: str
    pool: str
    admin: str

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Keys:
        """The three from `TRADEWIND_WORKER_KEY` and so on; raises `UserError` if one is missing."""
        found = {}
        for name in ("worker", "pool", "admin"):
            variable = f"TRADEWIND_{name.upper()}_KEY"
            found[name] = environment.get(variable, "")
            if not found[name]:
                raise UserError(
                    f"the {name} key is missing",
                    value=variable,
                    fix="set this environment variable to a random string, the same for both sides",
                )
        return cls(**found)

    def bears(self, request: Request, name: str) -> bool:
        """Whether the request bears the key of that name."""
        expected: str = getattr(self, name)
        return bears(request.headers, expected)

    def require(self, request: Request, name: str) -> None:
        """Raise `Unauthorized` unless the request bears the key of that name."""
        if not self.bears(request, name):
            raise Unauthorized(
                f"the {name} key is wrong; set TRADEWIND_{name.upper()}_KEY to the value that the "
                "controller was started with"
            )
