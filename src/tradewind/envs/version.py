"""Which version of an environment played a rollout."""

from __future__ import annotations

import functools
import hashlib
import inspect
from pathlib import Path

from tradewind.envs.protocol import Env

UNKNOWN = "unknown"
"""The version of code that has no file."""


@functools.lru_cache(maxsize=64)
def name_and_version(env: Env) -> str:
    """Module, name and 12 hex digits of SHA-256 over the module's file.

    Example: `orderdesk.env:rollout 3f9a0c1b2d4e`. What the module imports is not in the digest.
    """
    try:
        source = inspect.getsourcefile(env)
        digest = hashlib.sha256(Path(source or "").read_bytes()).hexdigest()[:12]
    except (TypeError, OSError):
        digest = UNKNOWN
    name = getattr(env, "__qualname__", type(env).__qualname__)
    return f"{env.__module__}:{name} {digest}"
