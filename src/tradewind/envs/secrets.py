"""Secrets stay home: what a worker's environment holds is taken out of what it sends."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any, Self

from tradewind.types.outcome import Outcome

log = logging.getLogger("worker")

_NAMES = re.compile(
    r"KEYS?(_|$)|TOKEN(?!IZ)|SECRET|PASSW|CREDENTIAL|AUTH(?!OR)|PRIVATE|DSN|DATABASE_URL|COOKIE",
    re.IGNORECASE,
)
_SHORTEST = 8


class Secrets:
    """Values that no outcome may contain. Exceptions like to quote them."""

    def __init__(self, values: Mapping[str, str]) -> None:
        """`values`: secrets by name; those shorter than 8 characters are not looked for."""
        longest_first = sorted(values.items(), key=lambda item: -len(item[1]))
        self._values = {v: name for name, v in longest_first if len(v) >= _SHORTEST}

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], more: Iterable[str] = ()) -> Self:
        """Every variable with a telling name (`*_KEY`, `*TOKEN*`, `PASSWORD`, ...), and `more`."""
        named = set(more)
        return cls({n: v for n, v in environment.items() if n in named or _NAMES.search(n)})

    def scrub(self, outcome: Outcome) -> Outcome:
        """The outcome with `[removed: NAME]` in place of each secret; each is logged once."""
        found: set[str] = set()
        clean = self._walk(outcome.model_dump(mode="json"), found)
        if not found:
            return outcome
        log.warning("took the value of %s out of an outcome", ", ".join(sorted(found)))
        return Outcome.model_validate(clean)

    def _walk(self, value: Any, found: set[str]) -> Any:
        if isinstance(value, str):
            return self._text(value, found)
        if isinstance(value, list):
            return [self._walk(item, found) for item in value]
        if isinstance(value, dict):
            return {self._text(k, found): self._walk(v, found) for k, v in value.items()}
        return value

    def _text(self, text: str, found: set[str]) -> str:
        for secret, name in self._values.items():
            if secret in text:
                found.add(name)
                text = text.replace(secret, f"[removed: {name}]")
        return text
